"""Whether a condition of a script is fixed by the script itself."""

from collections.abc import Callable

from tree_sitter import Node

from infrarsi.scripts.arithmetic import calculate
from infrarsi.scripts.atoms import Atom, Hole, text_of
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.state import State

_NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_SUCCEEDING = (
    "cd pushd popd mkdir echo export source . conda module set unset true : rm cp touch printf "
    "declare local readonly ulimit nvidia-smi pip wandb sleep date"
)
_SUCCEED = frozenset(_SUCCEEDING.split())


def truth(node: Node, expander: Expander, state: State) -> bool | None:
    """True or False where the condition is fixed, None where it depends on something else.

    A variable that nothing sets counts as empty, as in `${X:-default}`.
    """
    kind = node.type
    if kind in ("test_command", "parenthesized_expression"):
        inner = node.named_children
        return truth(inner[0], expander, state) if len(inner) == 1 else None
    if kind in ("negated_command",):
        value = truth(node.named_children[0], expander, state)
        return None if value is None else not value
    if kind == "compound_statement" and expander.raw(node).startswith("(("):
        number = calculate(node, lambda name: _integer(name, expander, state), expander.raw)
        return None if number is None else number != 0
    if kind == "unary_expression":
        return _unary(node, expander, state)
    if kind == "binary_expression":
        return _binary(node, expander, state)
    if kind == "list":
        return _list(node, expander, state)
    if kind == "command":
        return _command(node, expander)
    return None


def assumed_to_succeed(node: Node, expander: Expander) -> bool:
    """Whether what follows `&&` may be taken as reached: ordinary commands and assignments."""
    if node.type == "redirected_statement":
        return assumed_to_succeed(node.named_children[0], expander)
    if node.type == "command":
        name = node.child_by_field_name("name")
        return name is not None and expander.raw(name) in _SUCCEED
    if node.type == "list":
        return all(assumed_to_succeed(child, expander) for child in node.named_children)
    return node.type in ("variable_assignment", "variable_assignments", "declaration_command")


def _command(node: Node, expander: Expander) -> bool | None:
    return {"true": True, ":": True, "false": False}.get(expander.raw(node))


def _text(node: Node, expander: Expander, state: State) -> str | None:
    atoms: list[Atom] = []
    for atom in expander.atoms(node, state):
        if isinstance(atom, Hole) and atom.unassigned:
            continue
        if atom.condition:
            return None
        atoms.append(atom)
    return text_of(atoms)


def _integer(name: str, expander: Expander, state: State) -> int | None:
    text = text_of(expander.lookup(name, state) or ())
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _unary(node: Node, expander: Expander, state: State) -> bool | None:
    sign, operand = expander.raw(node.children[0]), node.children[-1]
    if sign == "!":
        value = truth(operand, expander, state)
        return None if value is None else not value
    if sign in ("-z", "-n"):
        text = _text(operand, expander, state)
        return None if text is None else (text == "") == (sign == "-z")
    return None


def _binary(node: Node, expander: Expander, state: State) -> bool | None:
    sign = expander.raw(node.children[1])
    left, right = node.children[0], node.children[-1]
    if sign in ("&&", "||", "-a", "-o"):
        return _joined(
            sign in ("&&", "-a"), truth(left, expander, state), truth(right, expander, state)
        )
    a, b = _text(left, expander, state), _text(right, expander, state)
    if a is None or b is None:
        return None
    if sign in ("=", "==", "!="):
        if any(mark in b for mark in "*?["):
            return None
        return (a == b) == (sign != "!=")
    if sign in _NUMERIC:
        if not (a.lstrip("-").isdigit() and b.lstrip("-").isdigit()):
            return None
        return _NUMERIC[sign](int(a), int(b))
    return None


def _list(node: Node, expander: Expander, state: State) -> bool | None:
    left, sign, right = node.children[0], expander.raw(node.children[1]), node.children[-1]
    return _joined(sign == "&&", truth(left, expander, state), truth(right, expander, state))


def _joined(both: bool, a: bool | None, b: bool | None) -> bool | None:
    if both:
        if a is False or b is False:
            return False
        return True if a and b else None
    if a or b:
        return True
    return False if a is False and b is False else None
