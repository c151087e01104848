"""Whether every parameter gets a gradient in every update: the signs that it may not.

Two recipes rest on it. A gradient of zero and no gradient are not the same to an optimizer (weight
decay and momentum still move a parameter whose gradient is zero), and DDP's static graph holds
only while the same parameters take part.
"""

import re
from collections.abc import Callable

import libcst as cst

from infrarsi.workspace.recipes.source import Source, argument, dotted, literal

_STATIC_CALLS = (
    *("isinstance", "hasattr", "getattr", "callable", "len", "size", "dim", "ndimension", "numel"),
    *("is_floating_point", "is_grad_enabled", "is_autocast_enabled", "is_available"),
    *("is_initialized", "is_compiling", "is_scripting", "is_tracing", "is_contiguous"),
    *("get_rank", "get_world_size", "lower", "startswith", "endswith"),
)
_ROUTED = re.compile(
    r"(?i)(layer_?drop|drop_?path|stochastic_?depth|droppath|mixture_?of|experts?|moe|gumbel"
    r"|num_experts|top_?k_?gat\w*|router)"
)
_RANDOM = re.compile(r"^(random\.|numpy\.random\.|torch\.(rand|bernoulli|multinomial))")


def sometimes_without_gradient(source: Source) -> str | None:
    """A sign in a file that a parameter may get a gradient in one update and none in another."""
    for sign in _SIGNS:
        found = sign(source)
        if found is not None:
            return found
    return None


def _unused_parameters(source: Source) -> str | None:
    for call in source.nodes(cst.Call):
        given = argument(call, "find_unused_parameters")
        if given is not None and literal(given) is not False:
            return f"{source.where(call)}: `find_unused_parameters` says that some get no gradient"
    return None


def _freezing(source: Source) -> str | None:
    for call in source.method_calls("requires_grad_"):
        return f"{source.where(call)}: parameters are frozen or thawed by `requires_grad_`"
    for target in source.nodes(cst.AssignTarget):
        if isinstance(target.target, cst.Attribute) and target.target.attr.value == "requires_grad":
            return f"{source.where(target)}: parameters are frozen or thawed by `requires_grad`"
    return None


def _routing(source: Source) -> str | None:
    for name in source.nodes(cst.Name):
        if _ROUTED.fullmatch(name.value):
            return f"{source.where(name)}: `{name.value}`: parts of the model may be left out"
    return None


def _conditional_forward(source: Source) -> str | None:
    for function in source.nodes(cst.FunctionDef):
        around = source.parent(source.parent(function) or function)
        if function.name.value != "forward" or not isinstance(around, cst.ClassDef):
            continue
        for branch in (
            source.nodes(cst.If, function)
            + source.nodes(cst.IfExp, function)
            + source.nodes(cst.While, function)
        ):
            if isinstance(branch, cst.While) or not _is_static(source, branch.test):
                code = " ".join(source.code(branch.test).split())
                return f"{source.where(branch)}: `{code}` decides what the model computes"
        for call in source.nodes(cst.Call, function):
            if _RANDOM.match(source.qualified(call.func) or "") and _chooses(source, call):
                return f"{source.where(call)}: chance decides what the model computes"
    return None


def _is_static(source: Source, test: cst.BaseExpression) -> bool:
    """Whether a test has the same result in every training step, as far as its form tells."""
    for call in source.nodes(cst.Call, test):
        last = dotted(call.func).split(".")[-1]
        if isinstance(call.func, cst.Attribute):
            last = call.func.attr.value
        if last not in _STATIC_CALLS:
            return False
    for comparison in source.nodes(cst.ComparisonTarget, test):
        if isinstance(comparison.operator, cst.Is | cst.IsNot):
            continue
        parent = source.parent(comparison)
        sides = [comparison.comparator]
        if isinstance(parent, cst.Comparison):
            sides.append(parent.left)
        if not any(_is_setting(source, side) for side in sides):
            return False
    return True


def _is_setting(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is a literal, an attribute of `self`, or made of sizes."""
    if literal(node) is not ...:
        return True
    text = source.code(node)
    return text.startswith(("self.", "len(")) or ".size(" in text or ".shape" in text


def _chooses(source: Source, call: cst.Call) -> bool:
    """Whether a random call is scalar-like: part of a loop's bounds or an index of a module."""
    around = source.enclosing(call, cst.For, cst.Subscript)
    return isinstance(around, cst.Subscript) or (
        isinstance(around, cst.For) and call in source.nodes(cst.Call, around.iter)
    )


def _conditional_backward(source: Source) -> str | None:
    """A backward that may be left out while the step is taken."""
    for call in backward_calls(source):
        for above in source.ancestors(call):
            if isinstance(above, cst.FunctionDef | cst.ClassDef | cst.Lambda):
                break
            if isinstance(above, cst.Try) and source.enclosing(above, cst.For, cst.While):
                return f"{source.where(call)}: the backward pass may be abandoned by an exception"
            if not isinstance(above, cst.If | cst.Else) or source.method_calls("step", under=above):
                continue  # what is left out together with the step makes no update
            if not _other_branch(source, above):
                return f"{source.where(call)}: the backward pass is taken only sometimes"
    return None


def _other_branch(source: Source, branch: cst.If | cst.Else) -> bool:
    """Whether every branch of the `if` chain has a backward."""
    top: cst.CSTNode = branch
    while (
        isinstance(source.parent(top), cst.If)
        and getattr(source.parent(top), "orelse", None) is top
    ):
        top = source.parent(top) or top
    node: cst.CSTNode | None = top
    while isinstance(node, cst.If):
        if not backward_calls(source, node.body) or node.orelse is None:
            return False
        node = node.orelse
    return node is not None and bool(backward_calls(source, node))


def backward_calls(source: Source, under: cst.CSTNode | None = None) -> list[cst.Call]:
    """Calls that run a backward pass (`loss.backward()`, `accelerator.backward(loss)`)."""
    return source.method_calls("backward", under=under) + source.calls(
        "torch.autograd.backward", under=under
    )


_SIGNS: tuple[Callable[[Source], str | None], ...] = (
    _unused_parameters,
    _freezing,
    _routing,
    _conditional_forward,
    _conditional_backward,
)
