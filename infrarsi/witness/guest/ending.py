"""How a record ends: by its last requested step, by the process's exit, or by an error."""

import atexit
import os
import sys
import threading

from .recorder import guard

EXIT = os._exit
BYE_S = 10.0
OOM_TYPES = ("OutOfMemoryError", "MemoryError")
OOM_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory")


def begin_training_call(recorder, root=None):
    """What every hook calls when a training forward or backward begins; may end the rank."""
    guard(recorder, "boundary", recorder.boundary, root)
    if recorder.over and not recorder.dead:
        leave(recorder)


def leave(recorder):
    """Seal the record and end the rank: by SystemExit, and hard if the job swallowed that one."""
    if recorder.gone:
        EXIT(0)
    guard(recorder, "seal", recorder.seal, "witness")
    if recorder.dead:
        return
    recorder.gone = True
    recorder.channel.wait_for_bye(BYE_S)
    if threading.current_thread() is not threading.main_thread():
        EXIT(0)  # SystemExit would end this thread alone
    raise SystemExit(0)


def watch_ends(recorder):
    """Seal at exit, at `os._exit`, and note an uncaught error; a forked child starts afresh."""
    hook = sys.excepthook

    def excepthook(kind, value, traceback):
        guard(recorder, "error", note_error, recorder, kind, value)
        return hook(kind, value, traceback)

    def leave_hard(code):
        guard(recorder, "seal", recorder.seal, "os._exit")
        EXIT(code)

    def at_exit():
        guard(recorder, "seal", recorder.seal, recorder.how)

    sys.excepthook = excepthook
    os._exit = leave_hard
    atexit.register(at_exit)
    recorder.uninstall.append(lambda: restore_ends(hook, excepthook, leave_hard, at_exit))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: forked(recorder))


def restore_ends(hook, excepthook, leave_hard, at_exit):
    """Put back what `watch_ends` replaced, unless the job replaced it again."""
    atexit.unregister(at_exit)
    if sys.excepthook is excepthook:
        sys.excepthook = hook
    if os._exit is leave_hard:
        os._exit = EXIT


def forked(recorder):
    """In a forked child: let go of the parent's socket, and open anew only if this one trains."""
    if recorder.channel is not None:
        recorder.channel.abandon()
    if recorder.writes is not None:
        recorder.writes.roots = None
    recorder.reset()


def note_error(recorder, kind, value):
    """Keep the type of an uncaught error, and its text if memory ran out."""
    if recorder.channel is None:
        return
    text = str(value)
    step = recorder.step.index
    recorder.how = kind.__name__
    if kind.__name__ in OOM_TYPES or any(sign in text.lower() for sign in OOM_SIGNS):
        recorder.channel.line("oom", {"text": text[:600], "step": step})
    recorder.channel.line("error", {"type": kind.__name__, "text": text[:300], "step": step})
