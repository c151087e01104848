"""Puts every hook in place once torch has been executed; nothing is recorded yet."""

import sys

from .compiled import hook_compile
from .cuda_graphs import hook_graphs
from .ending import watch_ends
from .hooks import hook_backward, hook_modules, hook_optimizers
from .paths import Writes
from .recorder import Recorder
from .side_hooks import hook_loader, hook_peak, hook_save, hook_scaler

SCALERS = ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler")  # the second before torch 2.3
LOADER = "torch.utils.data.dataloader"
DYNAMO = "torch._dynamo.eval_frame"


def install(path, actions):
    """Hook into the torch that was just imported; `actions` run after later imports.

    `path` is the harness's socket. Returns the recorder, whose record opens at the first training
    event of this process.
    """
    recorder = Recorder(path)
    try:
        codes = hook_modules(recorder)
        codes += hook_backward(recorder)
        codes += hook_optimizers(recorder)
        codes += hook_compile(recorder)
        codes += hook_graphs(recorder)
        codes += hook_save(recorder)
        codes += hook_peak(recorder)
        scaler = next((name for name in SCALERS if name in sys.modules), None)
        if scaler is not None:
            codes += hook_scaler(recorder, sys.modules[scaler])
        now_or_later(LOADER, lambda module: codes.extend(hook_loader(recorder, module)), actions)
        now_or_later(DYNAMO, lambda module: [module.skip_code(code) for code in codes], actions)
        watch_ends(recorder)
        recorder.writes = Writes(recorder)
    except Exception as exc:
        recorder.fault("install", exc)
    return recorder


def now_or_later(name, action, actions):
    """Run `action(module)` now if the module was imported, else right after its import."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        actions[name] = action
