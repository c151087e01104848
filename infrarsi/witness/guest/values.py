"""Numbers out of tensors without waiting for a device.

A tensor on the CPU is read at once. One on a device is copied, on its own stream, into a buffer
there; the buffer is read back by one asynchronous copy a second.
"""

import torch

BLOCK = 4096
MASK = 0xFFFFFFFFFFFFFFFF

if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
    compiling = torch.compiler.is_compiling
else:
    compiling = torch._dynamo.is_compiling


def local(tensor):
    """The part of a tensor that is on this rank (the local shard of a DTensor)."""
    return getattr(tensor, "_local_tensor", tensor)


def quiet():
    """Whether kernels may be launched now: not while a CUDA graph is captured."""
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Slot(object):
    """A place in a device's buffer whose values come later."""

    __slots__ = ("log", "start", "count")

    def __init__(self, log, start, count):
        self.log, self.start, self.count = log, start, count


class DeviceLog(object):
    """Slots of one dtype on one device, read back a block at a time."""

    def __init__(self, device, dtype):
        self.device, self.dtype, self.used, self.base = device, dtype, 0, 0
        self.buffer, self.away, self.ready = self._new(), [], {}

    def _new(self):
        return torch.empty(BLOCK, dtype=self.dtype, device=self.device)

    def put(self, tensor):
        flat = tensor.reshape(-1)
        count = flat.numel()
        if self.used + count > BLOCK:
            self.send()
        self.buffer[self.used : self.used + count].copy_(flat)
        slot = Slot(self, self.base + self.used, count)
        self.used += count
        return slot

    def send(self):
        """Start reading the block back."""
        if not self.used:
            return
        event = None
        if self.device.type == "cuda":
            host = torch.empty(BLOCK, dtype=self.dtype, pin_memory=True)
            host.copy_(self.buffer, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        else:
            host = self.buffer.to("cpu")
        self.away.append((self.base, self.used, host, event))
        self.base, self.used, self.buffer = self.base + self.used, 0, self._new()

    def collect(self, wait):
        """Take in the blocks that have arrived."""
        while self.away:
            base, used, host, event = self.away[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self.away.pop(0)
            self.ready[base] = (used, host)

    def get(self, slot):
        """The slot's values, or None while they are under way."""
        for base, (used, host) in self.ready.items():
            if base <= slot.start < base + used:
                return host[slot.start - base : slot.start - base + slot.count].tolist()
        return None

    def forget(self, before):
        """Let go of blocks that end at or before this slot number."""
        for base in [b for b, (used, _) in self.ready.items() if b + used <= before]:
            del self.ready[base]


class Values(object):
    """All device logs of a process."""

    def __init__(self):
        self.logs = {}

    def keep(self, tensor, dtype=torch.float64):
        """The values of a small tensor: a list on the CPU, a `Slot` elsewhere."""
        tensor = local(tensor.detach())
        if tensor.device.type == "cpu":
            return tensor.reshape(-1).to(dtype).tolist()
        key = (tensor.device, dtype)
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = DeviceLog(tensor.device, dtype)
        return log.put(tensor)

    def read(self, kept):
        """What `keep` kept, as a list, or None while it is under way (or was never kept)."""
        return kept.log.get(kept) if isinstance(kept, Slot) else kept

    def fetch(self, send, wait=False):
        """Start reading back (if `send`) and take in what has come."""
        for log in self.logs.values():
            if send:
                log.send()
            log.collect(wait)

    def under_way(self):
        return any(log.away for log in self.logs.values())

    def forget(self, waiting):
        """Let go of blocks that none of the `waiting` kept values points into."""
        for log in self.logs.values():
            starts = [kept.start for kept in waiting if isinstance(kept, Slot) and kept.log is log]
            log.forget(min(starts) if starts else log.base)
