"""The state of one training process's record: steps open and close here, and lines go out.

A logical step closes at the next training forward (or backward) after any optimizer stepped, which
covers accumulation, several optimizers, closures and steps taken inside backward.
"""

import collections
import math
import os
import sys
import time
import weakref

import torch

from . import alter, describe, precision, snapshots
from .account import MAX_EVAL_LOSSES, MAX_EVAL_OUTPUTS, Step
from .digests import Digester, sample, sampled
from .fingerprint import Patterns, norm_of
from .later import Later
from .looks import close_looks
from .models import model_line
from .names import Names, new_title
from .settings import Settings
from .snapshots import MAX_MODELS
from .values import Values, quiet
from .wire import Channel

CLOCK = time.perf_counter
FETCH_EVERY_S = 1.0  # in audits, where every step is a close look
MAX_QUEUE = 64  # steps that wait at most for the next close look
NO_OPTIMIZER = "no torch optimizer stepped after a backward: updates made by hand are not seen"


class Recorder(object):
    """Fed by the hooks; every method is called through `guard`, so it may raise."""

    def __init__(self, path):
        self.path = path
        self.optimizers = weakref.WeakSet()  # every optimizer made in this process
        self.uninstall = []
        self.intact = []  # (name, function that says whether the hook is still in place)
        self.writes = None
        self.dead = False
        self.reset()

    def reset(self):
        """Forget everything: a new process, or a forked child that has not trained yet.

        What the parent kept on a GPU stays referenced: letting go of an event or of pinned memory
        in a forked child aborts it, since CUDA cannot be used there (a DataLoader's worker, say).
        """
        self.of_parent = dict(self.__dict__)
        self.channel = self.config = None
        self.opened = self.sealed = self.over = self.gone = False
        self.in_backward = self.trains_in_eval = False
        self.stack = []
        self.stepped = False
        self.wait_s = self.compiled_s = 0.0
        self.problems = collections.Counter()
        self.roots = {}  # by id, since a module may define an equality of its own
        self.models = []
        self.names = {}
        self.queue = collections.deque()
        self.values, self.digester = Values(), Digester()
        self.patterns, self.parameter_names = Patterns(), Names()
        self.settings = Settings()
        self.later, self.final = Later(), None  # lines that wait for values; the end of an audit
        self.companions = self.said_precision = None
        self.audit = False
        self.peek = 0  # how many more module calls within this one look at precisions
        self.peeked = None  # what they add them to
        self.random_state = None
        self.captured, self.replays = set(), 0  # optimizers whose step is in a CUDA graph
        self.last_scale = None
        self.known_peak = 0
        self.gradient_bytes = {}
        self.watched = self.measured = None
        self.event = None
        self.last_counts = [None, ""]
        self.pace = math.inf  # seconds of the last ordinary step
        self.last_fetch = 0.0
        self.how = "exit"

    # -- opening

    def open(self, root):
        """At the first training event: connect, be told what to do, say what this process is."""
        self.opened = True
        rank, world = describe.rank_and_world()
        hello = {"pid": os.getpid(), "rank": rank, "world_size": world}
        self.channel = Channel(self.path, hello)
        self.config = self.channel.config
        kind = self.config["kind"]
        self.audit = kind != "timed"
        self.look = close_looks(bytes.fromhex(self.config["key"]), kind, self.limit())
        if self.audit:
            alter.functional_dropout_off(self.dropped)
        if kind == "perturbed":
            alter.move_weights(self.all_parameters(root))
        if torch.cuda.is_initialized():
            observe_oom(self)
        self.channel.line("head", describe.head_line())
        if self.writes is not None:
            self.writes.start(self.config["roots"], self.wrote)
        self.compiled_s = describe.compile_seconds()
        self.began = CLOCK()
        self.wait_s = 0.0
        self.event = new_event()
        self.step = Step(0, self.look(0), self.began)

    def limit(self):
        return int(self.config["optimizer_steps"])

    def all_parameters(self, root):
        """Parameters of the first root and of every optimizer there is."""
        found = [p for _, p in root.parameters()] if root is not None else []
        for optimizer in list(self.optimizers):
            found += [p for group in optimizer.param_groups for p in group["params"]]
        return found

    def root(self, target):
        """What is known of a module or function that the job calls itself."""
        reference, known = self.roots.get(id(target), (None, None))
        if reference is not None and reference() is target:
            return known
        key = getattr(target, "__func__", target)  # a bound method lives for one call only
        reference, known = self.roots.get(id(key), (None, None))
        if reference is None or reference() is not key:
            known = describe.Root(target)
            self.roots[id(key)] = (weakref.ref(key), known)
        return known

    def begin_model(self, root):
        """Say once what a trained model is; audit runs take its dropout away."""
        if root in self.models:
            return
        if self.models and len(self.models) < MAX_MODELS:
            root.prefix = root.name + "."
            root.title = new_title(root.name, self.models)
        self.models.append(root)
        if len(self.models) <= MAX_MODELS:
            self.channel.line("model", model_line(root), now=False)
            snapshots.at_start(self, root)

    # -- boundaries

    def boundary(self, root=None):
        """A training forward or backward begins: open, or close the step before."""
        if not self.opened:
            self.open(root)
        elif self.stepped and not self.stack:
            self.close()

    def close(self, last=False):
        """Close the current step. A close look does its work before the step's beat.

        Its time is left out of what is measured; after an ordinary step the beat goes out first.
        """
        step = self.step
        self.stepped = False
        if step.look:
            self.look_back(step, last)
        now = CLOCK()
        self.channel.beat(step.look)
        step.ended_s, step.seconds, step.wait_s = now - self.began, now - step.began_s, self.wait_s
        self.wait_s = 0.0
        self.pace = self.pace if step.look else step.seconds
        compiled_s = describe.compile_seconds()
        step.compile_s, self.compiled_s = compiled_s - self.compiled_s, compiled_s
        self.queue.append(step)
        self.step = Step(step.index + 1, self.look(step.index + 1), now)
        if not last and self.config["ends_by"] == "witness" and self.step.index >= self.limit():
            self.over = True
        if self.over:
            self.sample_weights(step)
        if last or self.over or len(self.queue) > MAX_QUEUE:
            self.stamp(step)
            self.check()
            self.settle()

    def look_back(self, step, last):
        """What a close look sees at its end; and the lines of the steps before it go out."""
        self.sample_weights(step)
        if step.index == 1:
            self.measured = self.static_bytes()
        if step.index or last:
            precision.say(self, step)
        self.check()
        self.settle()
        self.stamp(step)

    def sample_weights(self, step):
        """Keep samples of the weights as they are after a step: close looks, and the last one.

        At the exit of a process the models may be gone; what was kept before stays.
        """
        if quiet():
            kept = [self.values.keep(part) for part in sample(self.sampled())]
            step.weights = kept or step.weights

    def stamp(self, step):
        """Note the device's time between this boundary and the last one that was stamped."""
        event = new_event()
        if event is None:
            return
        start, self.event = step.events[0] if step.events else self.event, event
        if start is not None and start.device == event.device:
            step.events = (start, event)

    def sampled(self):
        """The sampled weights, chosen once: after the first step every model is known."""
        if self.watched is None:
            pool = [p for root in self.models for _, p in root.parameters()]
            stepped = {id(p) for p in self.all_parameters(None)}  # some are frozen for a while
            pool = [p for p in pool if p.requires_grad or id(p) in stepped]
            chosen = sampled(pool or self.all_parameters(None))
            self.watched = [weakref.ref(parameter) for parameter in chosen]
        there = [reference() for reference in self.watched]
        return [parameter for parameter in there if parameter is not None]

    def settle(self, wait=False):
        """Send the lines, in order, whose values have come back.

        Called at close looks, whose time is left out of what is measured: an ordinary step only
        keeps what it has seen.
        """
        if not quiet():
            return
        now = CLOCK()
        send = wait or not self.audit or now - self.last_fetch > FETCH_EVERY_S
        if send:
            self.last_fetch = now
        self.values.fetch(send, wait)
        while self.queue:
            text = self.queue[0].text(self.values, wait, self.last_counts)
            if text is None:
                break
            self.queue.popleft()
            self.channel.text("step", text, now=False)
        for kind, fields in self.later.ready(self.values):
            self.channel.line(kind, fields, now=False)
        self.channel.flush()
        if self.values.logs:
            waiting = [kept for step in self.queue for kept in step.kept()] + self.later.kept()
            if self.final is not None:
                waiting += self.final.kept()
            self.values.forget(waiting + list(self.step.kept()))

    def check(self):
        """Note hooks that are no longer where they were put."""
        for name, intact in self.intact:
            if not intact():
                self.problems["the witness's hook `%s` was replaced" % name] += 1

    # -- what the hooks tell

    def optimizer_name(self, optimizer):
        name = self.names.get(id(optimizer))
        if name is None:
            name = "%d:%s" % (len(self.names), type(optimizer).__name__)
            self.names[id(optimizer)] = name
            self.channel.line("optimizer", describe.optimizer_line(name, optimizer), now=False)
            for group, said in self.settings.groups(name, optimizer):
                said.changed(group)  # the line has just said them
        return name

    def dropped(self, p):
        """A functional dropout that an audit left out was called."""
        key = "%g" % p
        self.step.dropout_calls[key] = self.step.dropout_calls.get(key, 0) + 1

    def eval_output(self, tensors):
        """Keep scalar outputs of an evaluation forward, its losses; in audits its norm as well."""
        tensors = list(tensors)
        if self.audit and len(self.step.eval_outputs) < MAX_EVAL_OUTPUTS and quiet():
            norm = norm_of(tensor for _, tensor in tensors)
            if norm is not None:
                self.step.eval_outputs.append(self.values.keep(norm))
        for _, tensor in tensors:
            if tensor.dim() == 0 and tensor.is_floating_point() and quiet():
                if len(self.step.eval_losses) < MAX_EVAL_LOSSES:
                    self.step.eval_losses += (self.values.keep(tensor),)

    def wrote(self, path):
        """A path outside the allowed roots was opened for writing."""
        if self.channel is not None:
            self.channel.line("write", {"path": path}, now=False)

    # -- the end

    def static_bytes(self):
        optimizers = list(self.optimizers)
        return {
            "parameters": describe.tensor_bytes(self.all_model_parameters()),
            "gradients": sum(self.gradient_bytes.values()),
            "optimizer_states": describe.tensor_bytes(
                tensor for optimizer in optimizers for tensor in describe.state_tensors(optimizer)
            ),
        }

    def all_model_parameters(self):
        return [p for root in self.models for _, p in root.parameters()] or self.all_parameters(
            None
        )

    def seal(self, how):
        """Close what is open and send the end line; nothing is recorded afterwards."""
        if not self.opened or self.sealed or self.channel is None:
            return
        self.sealed = True
        at_exit = self.stepped
        rank, world = describe.rank_and_world()
        if at_exit:
            self.close(last=True)
        partial = {"forwards": self.step.forwards, "backwards": self.step.backwards}
        snapshots.send_end(self)
        self.settle(wait=True)
        if partial["backwards"] and not self.names and self.how == "exit":
            self.problems[NO_OPTIMIZER] += partial["backwards"]
        end = {
            "how": how,
            "rank": rank,
            "world_size": world,
            "steps": self.step.index,
            "closed_at_exit": at_exit,
            "seconds": round(CLOCK() - self.began, 6),
            "partial": partial,
            "graph_replays": self.replays,
            "peak_bytes": describe.peak_bytes(self.known_peak),
            "static_bytes": self.measured or self.static_bytes(),
            "problems": ["%s (%d times)" % item for item in sorted(self.problems.items())],
        }
        self.channel.line("end", end, now=False)
        self.channel.drain(5.0)

    def fault(self, where, exc):
        """The witness's own failure: say so once, take every hook out, leave the job alone."""
        if self.dead:
            return
        self.dead = True
        text = "%s: %s: %s" % (where, type(exc).__name__, str(exc).split("\n")[0][:200])
        try:
            sys.stderr.write("infrarsi witness: removed itself (%s)\n" % text)
            for undo in reversed(self.uninstall):
                undo()
            if self.channel is not None and not self.sealed:
                self.channel.line("fault", {"text": "the witness removed itself: " + text})
                self.channel.abandon()
        except Exception:  # nothing is left to tell it to
            self.channel = None


def guard(recorder, where, function, *args):
    """Run a part of the witness: on its first error it removes itself, the job never sees it."""
    if recorder.dead or recorder.sealed:
        return None
    try:
        return function(*args)
    except Exception as exc:
        recorder.fault(where, exc)
        return None


def new_event():
    """A timing event on the current stream where CUDA is in use, else None; nothing waits."""
    if not torch.cuda.is_initialized() or not quiet():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def observe_oom(recorder):
    """Note device memory that ran out, also where the job catches the error."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return

    def ran_out(device, wanted, total, free):
        fields = {"device": device, "wanted": wanted, "total": total, "free": free}
        fields["step"] = recorder.step.index
        fields["reserved"] = torch.cuda.memory_reserved(device)
        guard(recorder, "oom", recorder.channel.line, "oom", fields)

    attach(ran_out)
