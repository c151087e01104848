"""What a shell knows at one point of a script: variables, functions, folder."""

from dataclasses import dataclass, field, replace

from tree_sitter import Node

from infrarsi.scripts.atoms import Atoms, Field, Hole, merge_atoms, merge_elements


@dataclass(frozen=True)
class Variable:
    """A variable: `atoms` of a scalar or `elements` of an array; `value_span` as last written."""

    atoms: Atoms | None
    elements: tuple[Field, ...] | None
    raw: str
    line: int
    exported: bool = False

    @property
    def scalar(self) -> Atoms:
        """What `$X` gives: an array's first element."""
        if self.atoms is not None:
            return self.atoms
        return self.elements[0].atoms if self.elements else ()


@dataclass
class State:
    """A copyable shell state; `ended` after `exit` or `return`, in line `ended_at`.

    `cwd` is None once unknown, `positional` where the arguments cannot be known. `unset` holds
    variables removed on purpose, which therefore do not come from the environment. `sourced` names
    a file that was read in and may have set any variable that is not set here.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()
    positional: tuple[Field, ...] | None = ()
    cwd: str | None = "."
    ended: bool = False
    ended_at: int = 0
    sourced: str = ""

    def copy(self) -> "State":
        """An independent copy."""
        return replace(self, variables=dict(self.variables), functions=dict(self.functions))

    def become(self, other: "State") -> None:
        """Take over all of another state."""
        self.__dict__.update(other.copy().__dict__)

    def forget(self, name: str, expression: str, line: int) -> None:
        """From here on `name` holds something unknown."""
        exported = name in self.exported
        hole = (Hole(expression, line),)
        before = self.variables.get(name)
        if before is not None and before.elements is not None:
            elements = (Field(hole, line),)
            self.variables[name] = Variable(None, elements, expression, line, exported)
        else:
            self.variables[name] = Variable(hole, None, expression, line, exported)


def merge(states: list[State], condition: str, line: int) -> State:
    """The state after branches of which any one may have run."""
    alive = [state for state in states if not state.ended]
    if not alive:
        return states[0]
    merged = alive[0].copy()
    for other in alive[1:]:
        for name in sorted(merged.variables.keys() | other.variables.keys()):
            merged.variables[name] = _merge_variable(
                merged.variables.get(name), other.variables.get(name), name, condition, line
            )
        merged.functions.update(other.functions)
        merged.exported |= other.exported
        merged.unset &= other.unset
        merged.sourced = merged.sourced or other.sourced
        if merged.positional != other.positional:
            merged.positional = None
        if merged.cwd != other.cwd:
            merged.cwd = None
    return merged


def _elements(variable: Variable) -> tuple[Field, ...]:
    if variable.elements is not None:
        return variable.elements
    return (Field(variable.atoms or (), variable.line),)


def _merge_variable(
    a: Variable | None, b: Variable | None, name: str, condition: str, line: int
) -> Variable:
    known = a or b
    assert known is not None
    if a is None or b is None:
        if known.elements is not None:
            empty: tuple[Field, ...] = ()
            return replace(known, elements=merge_elements(empty, known.elements, condition, line))
        return replace(known, atoms=(Hole(f"${name}, {condition}", line),))
    exported = a.exported or b.exported
    if a.elements is not None or b.elements is not None:
        elements = merge_elements(_elements(a), _elements(b), condition, line)
        return replace(b, atoms=None, elements=elements, exported=exported)
    atoms = merge_atoms(a.atoms or (), b.atoms or (), condition, line)
    return replace(b, atoms=atoms, exported=exported)
