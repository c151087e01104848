"""Numbers out of tensors without waiting for a device.

A tensor on the CPU is read at once. One on a device is cloned, which is one launch; at close looks
the clones are joined on their stream and read back by one asynchronous copy.
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


capturing = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)


def quiet():
    """Whether kernels may be launched now: not while a CUDA graph is captured."""
    return not (torch.cuda.is_initialized() and capturing())


def stream_key(device):
    """What tells the current stream of a device from its others; cheaper than the stream itself."""
    if device.type != "cuda":
        return None
    read = getattr(torch._C, "_cuda_getCurrentStream", None)
    return torch.cuda.current_stream(device) if read is None else read(device.index)


class Slot(object):
    """Numbers of a device that come later: `count` of them from `start` on, in a log's order."""

    __slots__ = ("log", "start", "count")

    def __init__(self, log, start, count):
        self.log, self.start, self.count = log, start, count


class DeviceLog(object):
    """Clones of one dtype on one stream, scalars apart, read back together."""

    def __init__(self, device):
        self.stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self.pending, self.used, self.base = [], 0, 0
        self.away, self.ready = [], {}

    def put(self, tensor):
        tensor = tensor.clone()
        count = tensor.numel()
        self.pending.append(tensor)
        slot = Slot(self, self.base + self.used, count)
        self.used += count
        if self.used > BLOCK:
            self.send()
        return slot

    def send(self):
        """Start reading back what is pending."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        event = None
        if self.stream is not None:
            with torch.cuda.stream(self.stream):
                joined = joined_up(pending)
                host = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
                host.copy_(joined, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
        else:
            host = joined_up(pending).to("cpu")
        self.away.append((self.base, self.used, host, event))
        self.base, self.used = self.base + self.used, 0

    def collect(self, wait):
        """Take in the blocks that have arrived; whether there was one."""
        came = False
        while self.away:
            base, used, host, event = self.away[0]
            if event is not None and not event.query():
                if not wait:
                    break
                event.synchronize()
            self.away.pop(0)
            self.ready[base] = (used, host.tolist())
            came = True
        return came

    def get(self, slot):
        """The slot's values, or None while they are under way."""
        for base, (used, numbers) in self.ready.items():
            if base <= slot.start < base + used:
                return numbers[slot.start - base : slot.start - base + slot.count]
        return None

    def forget(self, before):
        """Let go of blocks that end at or before this slot number."""
        for base in [b for b, (used, _) in self.ready.items() if b + used <= before]:
            del self.ready[base]


def joined_up(tensors):
    """All elements of tensors that have dimensions all, or of scalars."""
    if not tensors[0].dim():
        return torch.stack(tensors)
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


class Values(object):
    """All device logs of a process."""

    def __init__(self):
        self.logs = {}

    def keep(self, tensor):
        """The values of a small tensor: a list on the CPU, a `Slot` elsewhere."""
        tensor = local(tensor.detach())
        if tensor.is_complex():
            tensor = tensor.real
        device = tensor.device
        if device.type == "cpu":
            return tensor.reshape(-1).tolist()
        key = (device, tensor.dtype, tensor.dim() == 0, stream_key(device))
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = DeviceLog(device)
        return log.put(tensor)

    def read(self, kept):
        """What `keep` kept, as a list, or None while it is under way (or was never kept)."""
        return kept.log.get(kept) if isinstance(kept, Slot) else kept

    def have(self, kept):
        """Whether all of what `keep` kept has come."""
        for one in kept:
            if isinstance(one, Slot) and one.log.get(one) is None:
                return False
        return True

    def fetch(self, send, wait=False):
        """Start reading back (if `send`) and take in what has come; whether anything came."""
        came = False
        for log in self.logs.values():
            if send:
                log.send()
            if log.away:
                came = log.collect(wait) or came
        return came

    def forget(self, waiting):
        """Let go of blocks that none of the `waiting` kept values points into."""
        for log in self.logs.values():
            starts = [kept.start for kept in waiting if isinstance(kept, Slot) and kept.log is log]
            log.forget(min(starts) if starts else log.base)
