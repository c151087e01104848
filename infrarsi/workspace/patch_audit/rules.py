"""What a patch may not touch, as lists of dotted paths and names, each with its reason."""

import re
import sys


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLOCKS = ("time", "datetime")
TOLD_OF = "it can search for what watches the job"
PROCESS = "it ends or replaces the process, or meddles with another one"
TRACING = "it traces or reads the frames of code that is not the patch's"
WRAPPED = "it goes past what was put around a function"
DETACHED = "it leaves a process behind that outlives the job"
IMPORTS = "it changes how modules are found or what they are"
HOOKS = "it touches hooks that belong to whoever set them"
COMPUTED = "code that is made at run time cannot be audited"
NETWORK = "a training step needs no socket of its own"
MEMORY = "it reaches memory and libraries past Python"
WITNESS = "it names what watches the job"
PYTHON_START = "it changes how Python starts"
SYSTEM = "it reads what the system says about processes"
OUTSIDE = "it writes outside the job's own folder"
DESCRIPTOR = "it uses a file descriptor that it did not open"
REPLACED = "other code relies on it; give the function a name of its own in this file"
CLOCK = "the clock gets another meaning"
PIECED = "the name is put together so that it cannot be read"
UNREADABLE = "which name it is cannot be read"
HANDED_ON = "what is done to the module cannot be followed"

REFUSED_PATHS = {
    "gc.get_objects": TOLD_OF,
    "gc.get_referrers": TOLD_OF,
    "gc.get_referents": TOLD_OF,
    "gc.callbacks": TOLD_OF,
    "gc.garbage": TOLD_OF,
    "ctypes": MEMORY,
    "_ctypes": MEMORY,
    "cffi": MEMORY,
    "os._exit": PROCESS,
    "os.abort": PROCESS,
    "os.kill": PROCESS,
    "os.killpg": PROCESS,
    "os.fork": PROCESS,
    "os.forkpty": PROCESS,
    "os.posix_spawn": PROCESS,
    "os.posix_spawnp": PROCESS,
    **{f"os.exec{end}": PROCESS for end in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")},
    **{f"os.spawn{end}": PROCESS for end in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")},
    "pty": PROCESS,
    "signal.pthread_kill": PROCESS,
    "signal.raise_signal": PROCESS,
    "os.setsid": DETACHED,
    "os.setpgrp": DETACHED,
    "os.setpgid": DETACHED,
    "os.closerange": DESCRIPTOR,
    "os.dup2": DESCRIPTOR,
    "sys.settrace": TRACING,
    "sys.setprofile": TRACING,
    "sys._getframe": TRACING,
    "sys._getframemodulename": TRACING,
    "sys._current_frames": TRACING,
    "sys.addaudithook": TRACING,
    "sys.monitoring": TRACING,
    "sys.call_tracing": TRACING,
    "threading.settrace": TRACING,
    "threading.setprofile": TRACING,
    "threading.settrace_all_threads": TRACING,
    "threading.setprofile_all_threads": TRACING,
    "threading._active": TRACING,
    "inspect.currentframe": TRACING,
    "inspect.stack": TRACING,
    "inspect.trace": TRACING,
    "inspect.getouterframes": TRACING,
    "inspect.getinnerframes": TRACING,
    "inspect.getclosurevars": TRACING,
    "traceback.walk_stack": TRACING,
    "traceback.walk_tb": TRACING,
    "bdb": TRACING,
    "sys.meta_path": IMPORTS,
    "sys.path_hooks": IMPORTS,
    "sys.path_importer_cache": IMPORTS,
    "importlib.reload": IMPORTS,
    "builtins.__import__": IMPORTS,
    "importlib.__import__": IMPORTS,
    "sitecustomize": IMPORTS,
    "usercustomize": IMPORTS,
    "imp": IMPORTS,
    "unittest.mock": IMPORTS,
    "mock": IMPORTS,
    "wrapt": IMPORTS,
    "builtins.exec": COMPUTED,
    "builtins.eval": COMPUTED,
    "builtins.compile": COMPUTED,
    "code": COMPUTED,
    "codeop": COMPUTED,
    "runpy": COMPUTED,
    "marshal": COMPUTED,
    "types.FunctionType": COMPUTED,
    "types.LambdaType": COMPUTED,
    "types.CodeType": COMPUTED,
    "atexit._clear": PROCESS,
    "atexit._run_exitfuncs": PROCESS,
    "atexit.unregister": PROCESS,
    "socket.socket": NETWORK,
    "socket.create_connection": NETWORK,
    "socket.create_server": NETWORK,
    "socket.socketpair": NETWORK,
    "socket.fromfd": NETWORK,
    "socket.SocketType": NETWORK,
    "_socket": NETWORK,
    "socketserver": NETWORK,
    "multiprocessing.connection": NETWORK,
    "torch.overrides.TorchFunctionMode": HOOKS,
    "torch.utils._python_dispatch": HOOKS,
    "torch.library.Library": HOOKS,
    "torch.library.impl": HOOKS,
    "torch.nn.modules.module.register_module_forward_hook": HOOKS,
    "torch.nn.modules.module.register_module_forward_pre_hook": HOOKS,
    "torch._C._autograd": HOOKS,
}
"""A path refuses everything below it too."""

REFUSED_ATTRIBUTES = {
    "__code__": TRACING,
    "__globals__": TRACING,
    "__closure__": TRACING,
    "cell_contents": TRACING,
    "__subclasses__": TOLD_OF,
    "__wrapped__": WRAPPED,
    "__builtins__": IMPORTS,
    "f_back": TRACING,
    "f_locals": TRACING,
    "f_globals": TRACING,
    "tb_frame": TRACING,
    "gi_frame": TRACING,
    "cr_frame": TRACING,
    "_forward_hooks": HOOKS,
    "_forward_pre_hooks": HOOKS,
    "_forward_hooks_with_kwargs": HOOKS,
    "_forward_hooks_always_called": HOOKS,
    "_backward_hooks": HOOKS,
    "_backward_pre_hooks": HOOKS,
    "_optimizer_step_pre_hooks": HOOKS,
    "_optimizer_step_post_hooks": HOOKS,
    "_is_full_backward_hook": HOOKS,
}
REFUSED_NAME = re.compile(
    r"infrarsi|^sitecustomize$|^usercustomize$"
    r"|^_global_\w*hooks|^register_module_\w*hook$|^register_optimizer_step_\w*hook$",
    re.IGNORECASE,
)
REFUSED_TEXTS = (
    (re.compile(r"infrarsi", re.IGNORECASE), WITNESS),
    (re.compile(r"(^|[\s'\"=])/proc(/|$)"), SYSTEM),
    (re.compile(r"(^|[\s'\"=])/dev/(fd|mem|kmem|tcp|udp)(/|$)"), SYSTEM),
    (re.compile(r"\b(sitecustomize|usercustomize)\b"), PYTHON_START),
    (
        re.compile(r"^PYTHON(PATH|HOME|STARTUP|SAFEPATH|NOUSERSITE|INSPECT|ISOLATED|BREAKPOINT)$"),
        PYTHON_START,
    ),
    (re.compile(r"^LD_(PRELOAD|AUDIT|LIBRARY_PATH)$"), PYTHON_START),
)

SETTINGS = (
    "torch.backends",
    "torch._dynamo.config",
    "torch._inductor.config",
    "torch._functorch.config",
    "torch.compiler.config",
    "sys.path",
    "sys.argv",
    "sys.stdout",
    "sys.stderr",
    "logging",
    "warnings",
    "random",
)
"""What is there to be set; a change of it is shown, not refused."""
PROTECTED = frozenset(sys.stdlib_module_names) | {"torch"}
"""Modules whose attributes other code relies on."""
KEPT_WHOLE = frozenset({"time", "gc", "sys", "os", "builtins", "importlib", "inspect", "<globals>"})
"""Modules that no honest change looks up by a computed name."""
REACHED = frozenset({"time", "gc", "sys", "os", "builtins", "ctypes", "socket", "threading"})
"""Modules that are recognised behind any other: `helpers.time.perf_counter`."""
NOT_HANDED_ON = frozenset({"time", "gc", "sys", "os", "builtins", "importlib", "ctypes"})
SETTERS = frozenset(
    {
        "builtins.setattr",
        "builtins.delattr",
        "builtins.object.__setattr__",
        "builtins.object.__delattr__",
        "builtins.type.__setattr__",
        "builtins.type.__delattr__",
        "operator.setitem",
        "operator.delitem",
    }
)
LOOKERS = frozenset({"builtins.getattr", "builtins.hasattr", "builtins.object.__getattribute__"})
MUTATORS = _words(
    "append insert extend remove pop clear update setdefault __setitem__ __delitem__ popitem "
    "__setattr__ __delattr__ reverse sort"
)
WRITERS = _words(
    "save savez savez_compressed savetxt dump write_text write_bytes touch unlink mkdir makedirs "
    "rmdir rmtree remove rename renames replace symlink symlink_to hardlink_to link copy copy2 "
    "copyfile copytree move truncate chmod mkfifo save_file save_pretrained to_csv tofile "
    "to_parquet save_model save_state"
)
"""Names of calls that write where their arguments or their object say."""
OPENERS = frozenset({"open", "fdopen", "memmap", "open_memmap", "FileIO"})
HARMLESS_PLACES = ("/dev/null", "/dev/stdout", "/dev/stderr")


def refused_path(path: str) -> str | None:
    """The reason against a dotted path, None if there is none."""
    for view in _views(path):
        parts = view.split(".")
        for size in range(len(parts), 0, -1):
            reason = REFUSED_PATHS.get(".".join(parts[:size]))
            if reason is not None:
                return reason
    return None


def protected(path: str) -> bool:
    """Whether what stands at a path may not be given another meaning by a patch."""
    return any(_protected(view) for view in _views(path))


def _protected(path: str) -> bool:
    if any(path == known or path.startswith(known + ".") for known in SETTINGS):
        return False
    root, _, rest = path.partition(".")
    return root in PROTECTED and bool(rest)


def _views(path: str) -> list[str]:
    """The path, and what it is if a module is reached through another that imported it."""
    parts = [part.lstrip("_") if part.lstrip("_") in REACHED else part for part in path.split(".")]
    return [path, *(".".join(parts[i:]) for i in range(1, len(parts)) if parts[i] in REACHED)]


def refused_text(text: str) -> str | None:
    """The reason against a text that a patch brings in."""
    return next((reason for pattern, reason in REFUSED_TEXTS if pattern.search(text)), None)


def lies_outside(path: str) -> bool:
    """Whether a path, or how it begins, leaves the folder of the job."""
    if path in HARMLESS_PLACES:
        return False
    return path.startswith(("/", "~")) or ".." in path.split("/")
