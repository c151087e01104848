"""Which areas the lines of a Python file touch: by names, by calls, and by where they stand."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator

from infrarsi.contract import AREAS
from infrarsi.workspace.patch_audit.areas import areas_of_name
from infrarsi.workspace.patch_audit.names import Names
from infrarsi.workspace.patch_audit.rules import PROTECTED, SETTINGS, refused_path


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PROCESS_MODULES = _words(
    "gc signal subprocess multiprocessing threading _thread concurrent asyncio importlib atexit "
    "inspect weakref socket ctypes pickle cloudpickle dill shelve mmap resource faulthandler "
    "traceback types psutil builtins pkgutil tracemalloc pdb code"
)
_PROCESS_PATHS = (
    "os.environ", "os.system", "os.popen", "os.getpid", "os.sched_setaffinity", "os.nice",
    "os.setpriority", "os.register_at_fork", "sys.exit", "sys.modules", "sys.path", "sys.argv",
    "sys.setswitchinterval", "builtins.exit", "builtins.quit", "builtins.SystemExit",
    "builtins.setattr", "builtins.delattr", "builtins.globals", "builtins.vars", "torch._C",
    "torch.multiprocessing", "torch.library", "torch.utils.cpp_extension", "torch.ops.load_library",
    "torch.hub", "tempfile",
)  # fmt: skip
_PROCESS_ATTRIBUTES = _words(
    "register_hook register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_post_accumulate_grad_hook register_comm_hook register_step_pre_hook "
    "register_step_post_hook __class__ __wrapped__ __dict__ __getattribute__ "
    "set_multithreading_enabled set_num_threads"
)
_ROLE_AREAS = frozenset(AREAS) - {"precision", "process"}
_LOSS_CALLS = _words(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div CrossEntropyLoss "
    "binary_cross_entropy binary_cross_entropy_with_logits MSELoss BCEWithLogitsLoss NLLLoss "
    "ctc_loss cosine_embedding_loss"
)
_ROLES = {"get_lr": {"schedule"}, "configure_optimizers": {"optimizer"}}
_OF_A_CLASS = _words("__getitem__ __iter__ __len__ __next__ __call__ __init__ step")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = (*_LOOPS, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.ExceptHandler)
_STATEMENTS = (ast.stmt, ast.ExceptHandler)
_JUMPS = (ast.Continue, ast.Break, ast.Return, ast.Raise)


def touched(tree: ast.AST, lines: Collection[int]) -> dict[int, set[str]]:
    """The areas of each of `lines` of a module; lines without any are left out."""
    wanted = set(lines)
    names = Names(tree)
    fed = _fed_by_data(names)
    found: dict[int, set[str]] = defaultdict(set)
    for node in names.nodes:
        line = getattr(node, "lineno", None)
        if line in wanted:
            found[line] |= set(_areas(node, names))
            if isinstance(node, ast.Name) and node.id in fed:
                found[line].add("data")
    for node in names.nodes:
        covered = wanted & set(_own_lines(node)) if isinstance(node, _STATEMENTS) else set()
        for line in covered:
            found[line] |= _roles(node, names)
            if not found[line]:  # the middle of a call that is written on several lines
                found[line] |= _in_all(node, names)
        if getattr(node, "lineno", None) in wanted:
            if isinstance(node, _BLOCKS):
                found[node.lineno] |= _inside(node, names)
            elif isinstance(node, _JUMPS):
                found[node.lineno] |= _skipped(node, names)
    return {line: areas for line, areas in found.items() if areas}


def _fed_by_data(names: Names) -> set[str]:
    """Names of what a call hands out that has to do with data: `x, y = next(batches)`."""
    found: set[str] = set()
    for node in names.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = [node.value.func, *node.value.args]
            if any("data" in areas_of_name(_last(part)) for part in called):
                targets = (part for target in node.targets for part in ast.walk(target))
                found |= {part.id for part in targets if isinstance(part, ast.Name)}
        elif isinstance(node, ast.For) and "data" in areas_of_name(_last(node.iter)):
            found |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    return found


def _in_all(statement: ast.AST, names: Names) -> set[str]:
    """What a simple statement touches; a compound one is told by its parts."""
    if hasattr(statement, "body"):
        return set()
    return {area for node in ast.walk(statement) for area in _areas(node, names)}


def _own_lines(node: ast.AST) -> range:
    """The lines of a simple statement, the first of any other."""
    first = getattr(node, "lineno", 0)
    compound = hasattr(node, "body")
    return range(first, (first if compound else getattr(node, "end_lineno", first) or first) + 1)


def _areas(node: ast.AST, names: Names) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        paths = names.paths(node)
        yield from _of_paths(paths, node)
        plain = node.id if isinstance(node, ast.Name) else node.attr
        if not any(path.startswith("torch.utils.checkpoint") for path in paths):
            yield from areas_of_name(plain)
        if plain in _PROCESS_ATTRIBUTES:
            yield "process"
    elif isinstance(node, ast.Call):
        yield from _of_paths(names.paths(node), node)
        looks_up = "builtins.getattr" in names.paths(node.func) and len(node.args) > 1
        if looks_up and names.text(node.args[1]) is None:
            yield "process"
    elif isinstance(node, ast.keyword | ast.arg):
        yield from areas_of_name(node.arg or "")
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from areas_of_name(node.name)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _of_import(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.isascii() and len(node.value) < 40 and " " not in node.value:
            yield from areas_of_name(node.value)
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name | ast.Call):
        yield "process" if "SystemExit" in ast.unparse(node.exc) else "logging"


def _of_paths(paths: Collection[str], node: ast.AST) -> Iterator[str]:
    for path in paths:
        root = path.split(".")[0]
        if root in ("time", "datetime") or path.startswith(("torch.cuda.Event", "torch.profiler")):
            yield "timing"
        if (root in _PROCESS_MODULES and root != "builtins") or refused_path(path):
            yield "process"
        if any(path == known or path.startswith(known + ".") for known in _PROCESS_PATHS):
            yield "process"
        if path.startswith(("torch.distributed", "torch.nn.parallel")):
            yield "distributed"
        if path.startswith(("torch.optim.lr_scheduler",)):
            yield "schedule"
        elif path.startswith("torch.optim"):
            yield "optimizer"
        if path.startswith(("torch.backends", "torch.set_float32_matmul_precision", "torch.amp")):
            yield "precision"
        if path.startswith("torch.utils.data"):
            yield "data"
        if root == "random" or path.startswith("numpy.random"):
            yield "randomness"
        stored = not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if stored and "." in path and not path.startswith(SETTINGS):
            yield "process"  # what was imported gets another meaning


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = getattr(node, "module", None) or ""
    for alias in node.names:
        path = f"{module}.{alias.name}" if module else alias.name
        if getattr(node, "level", 0):
            yield from areas_of_name(alias.name)
            continue
        yield from _of_paths([path], node)
        if path.startswith("torch.utils.checkpoint"):
            continue
        if path.split(".")[0] not in PROTECTED or module:
            yield from areas_of_name(alias.name)


def _roles(node: ast.AST, names: Names) -> set[str]:
    """The areas of the functions and classes that a node stands in."""
    found: set[str] = set()
    inner: str | None = None
    while (parent := names.parents.get(id(node))) is not None:
        node = parent
        if isinstance(node, _FUNCTIONS):
            found |= _ROLES.get(node.name, areas_of_name(node.name) & _ROLE_AREAS)
            if _computes_loss(node):
                found.add("loss")
            inner = inner or node.name
        elif isinstance(node, ast.ClassDef) and (inner in _OF_A_CLASS or inner is None):
            found |= areas_of_name(node.name) & _ROLE_AREAS
    return found


def _computes_loss(function: ast.AST) -> bool:
    """Whether a function makes a loss and is not the training loop itself."""
    called = {_last(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return bool(called & _LOSS_CALLS) and not called & {"backward", "zero_grad"}


def _inside(block: ast.AST, names: Names) -> set[str]:
    """What a condition or loop decides about."""
    found: set[str] = set()
    for node in ast.walk(block):
        found |= _skipped(node, names) if isinstance(node, _JUMPS) else set(_areas(node, names))
    found.discard("process")
    return found | set(_header(block, names))


def _header(block: ast.AST, names: Names) -> Iterator[str]:
    for field in ("test", "iter", "target", "type"):
        part = getattr(block, field, None)
        for node in ast.walk(part) if part is not None else ():
            yield from _areas(node, names)


def _skipped(jump: ast.AST, names: Names) -> set[str]:
    """What a jump may pass over: the loop or function around it."""
    node: ast.AST | None = jump
    while node is not None and not isinstance(node, (*_LOOPS, *_FUNCTIONS)):
        node = names.parents.get(id(node))
    if not isinstance(node, _LOOPS):
        return set()
    return {area for inner in ast.walk(node) for area in _areas(inner, names)} - {"process"}


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
