"""Notes paths that the job opens for writing outside the folders it was given."""

import os
import sys

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
IGNORED = ("/dev/", "/proc/", "/sys/")
MAX_NOTED = 20
MAX_EARLY = 1000
OTHER_EVENTS = {"os.rename": 1, "os.remove": 0, "os.truncate": 0, "os.link": 1, "os.symlink": 1}


class Writes(object):
    """An audit hook; until the record opens it only remembers."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.roots = None
        self.tell = None
        self.early = {}
        self.seen = set()
        self.noted = set()
        self.busy = False
        if hasattr(sys, "addaudithook"):
            sys.addaudithook(self.event)

    def event(self, name, args):
        """Called by Python for every audit event of the process, so it must be quick."""
        try:
            if name == "open":
                path, mode, flags = args
                if mode is None:
                    if not flags & WRITE_FLAGS:
                        return
                elif mode == "r" or mode == "rb" or not set(mode) & set("wax+"):
                    return
            elif name in OTHER_EVENTS:
                path = args[OTHER_EVENTS[name]]
            else:
                return
        except Exception:  # an event of somebody else's making: no file is being opened
            return
        self.wrote(path)

    def wrote(self, path):
        """A path is about to be written to; never raises (an audit hook's error is the job's)."""
        if self.busy or self.recorder.dead or self.recorder.sealed:
            return
        self.busy = True
        try:
            self.consider(path)
        except Exception as exc:
            self.recorder.fault("paths", exc)
        finally:
            self.busy = False

    def consider(self, path):
        if isinstance(path, int):
            return
        text = os.path.abspath(os.fsdecode(path))
        if text in self.seen or text.startswith(IGNORED) or "/__pycache__" in text:
            return
        if self.roots is None:
            if len(self.early) < MAX_EARLY:
                self.early[os.path.realpath(text)] = None
            return
        if len(self.seen) < 10000:
            self.seen.add(text)
        self.judge(os.path.realpath(text))

    def judge(self, real):
        """Tell of a real path outside every root, the first twenty of them."""
        if real.startswith(IGNORED) or len(self.noted) >= MAX_NOTED or real in self.noted:
            return
        if any(real == root or real.startswith(root.rstrip("/") + "/") for root in self.roots):
            return
        self.noted.add(real)
        self.tell(real)

    def start(self, roots, tell):
        """From now on paths outside `roots` are told, those seen before included."""
        self.roots, self.tell = roots, tell
        self.seen.clear()
        self.noted.clear()
        for real in self.early:
            self.judge(real)
        self.early.clear()
