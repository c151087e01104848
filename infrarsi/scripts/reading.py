"""Everything that is read out of a script at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from infrarsi.errors import UserError
from infrarsi.scripts.atoms import Field, computed, guard, text_of
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.interpreter import Interpreter, Invocation, Site
from infrarsi.scripts.launching import Launched, raw_of, recognise
from infrarsi.scripts.model import Assignment, TrainingCommand, Write
from infrarsi.scripts.state import State, Variable
from infrarsi.scripts.wrapping import on_host

_WRITERS = ("tee", "mkdir", "touch", "rm", "rmdir", "cp", "mv", "ln", "rsync")
_INTO_LAST = ("cp", "mv", "ln", "rsync")
_SILENT = ("/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty")


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


@dataclass(frozen=True)
class Reading:
    """A parsed script: the tree, what it runs, and the state at its end."""

    expander: Expander
    tree: Tree
    invocations: tuple[Invocation, ...]
    sites: tuple[Site, ...]
    end: State
    where: str

    @classmethod
    def of(
        cls,
        source: bytes,
        path: str,
        where: str,
        root: str,
        environ: Mapping[str, str],
        arguments: tuple[str, ...],
        forced: Mapping[str, str] | None = None,
    ) -> "Reading":
        """Parse and walk; a `forced` variable has its value from the start and keeps it."""
        expander = Expander(source, path, root, environ)
        tree = _parser().parse(source)
        positional = tuple(Field(guard(computed(text)), 0) for text in arguments)
        interpreter = Interpreter(expander, forced)
        end = interpreter.run(tree.root_node, State(positional=positional))
        return cls(
            expander, tree, tuple(interpreter.invocations), tuple(interpreter.sites), end, where
        )

    def launched(self) -> Launched:
        """The training command taken apart; raises UserError if there is none or no single one."""
        found = [x for i in self.invocations if (x := recognise(i, self.expander)) is not None]
        if not found:
            raise UserError(self._nothing(), where=self.where, fix=_FIX_NOTHING)
        best = max(x.rank for x in found)
        found = [x for x in found if x.rank == best]
        certain = [x for x in found if not x.invocation.condition]
        chosen = certain or found
        if len({x.invocation.node.start_byte for x in chosen}) > 1:
            lines = sorted({self.expander.line(x.invocation.node) for x in chosen})
            listed = ", ".join(str(line) for line in lines)
            raise UserError(
                f"{len(lines)} commands may start the training, in lines {listed}",
                where=f"{self.where}:{lines[0]}",
                fix="make a script that starts only the one to be optimised",
            )
        self._check_syntax(chosen[-1])
        return chosen[-1]

    def _nothing(self) -> str:
        names = sorted({f.text for i in self.invocations for f in i.fields[:1] if f.text})
        ran = ", ".join(f"`{name}`" for name in names[:12]) or "nothing"
        return (
            "no command that starts training (torchrun, python, accelerate launch, deepspeed) "
            f"was found; the script runs {ran}"
        )

    def _check_syntax(self, launched: Launched) -> None:
        node = launched.invocation.statement
        lines = range(node.start_point[0], node.end_point[0] + 1)
        if any(error.start_point[0] in lines for error in _errors(self.tree.root_node)):
            raise UserError(
                "the shell syntax of the training command is not understood",
                where=f"{self.where}:{self.expander.line(node)}",
                fix="check it with `bash -n`, or write the command in a simpler form",
            )

    def is_repeated(self, launched: Launched) -> bool:
        """Whether the training command runs more than once."""
        node = launched.invocation.node
        runs = [i for i in self.invocations if i.node.start_byte == node.start_byte]
        return len(runs) > 1 or any(i.in_loop for i in runs)

    def training_command(self) -> TrainingCommand:
        """The public form of `launched`."""
        return self._public(self.launched())

    def programs(self) -> tuple[TrainingCommand, ...]:
        """Every command that starts a Python program, each once, in the order of its lines."""
        found = [x for i in self.invocations if (x := recognise(i, self.expander)) is not None]
        each = {x.invocation.node.start_byte: x for x in found}
        return tuple(self._public(each[start]) for start in sorted(each))

    def _public(self, launched: Launched) -> TrainingCommand:
        state = launched.invocation.state
        entry = launched.entry.text
        cwd = launched.chain.folder(state.cwd, self.expander.folders.resolve)
        return TrainingCommand(
            launcher=launched.launcher,
            launcher_options=tuple(s.argument for s in launched.options),
            entry=entry,
            entry_raw=raw_of(launched.entry, self.expander),
            script=self._script(entry, launched, cwd),
            is_module=launched.is_module,
            arguments=tuple(s.argument for s in launched.slots),
            line=self.expander.line(launched.invocation.node),
            environment=self._environment(launched),
            cwd=cwd,
            repeated=self.is_repeated(launched),
            wrappings=launched.chain.public(),
            mounts=launched.chain.mounts(),
        )

    def _environment(self, launched: Launched) -> dict[str, Assignment]:
        """Exported variables, and what `env` in front of the launcher adds and takes away."""
        environment = {
            name: assignment
            for name, assignment in self._assignments(launched.invocation.state).items()
            if assignment.exported
        }
        return {
            name: self._given(name, found) if isinstance(found, Field) else found
            for name, found in launched.environment(environment).items()
        }

    def _given(self, name: str, field: Field) -> Assignment:
        value = None if field.text is None else field.text[len(name) + 1 :]
        return Assignment(name, value, raw_of(field, self.expander), field.line, True)

    def _script(self, entry: str | None, launched: Launched, cwd: str | None) -> str | None:
        if entry is None:
            return None
        if launched.is_module:
            return self.expander.folders.resolve(entry.replace(".", "/") + ".py", cwd)
        if launched.chain.container is not None and entry.startswith("/"):
            outside = on_host(entry, launched.chain.mounts())
            entry = outside if outside is not None else entry
        return self.expander.folders.resolve(entry, cwd)

    def assignments(self) -> dict[str, Assignment]:
        """The variables at the script's end, those of the training command's prefix left out."""
        return self._assignments(self.end)

    def _assignments(self, state: State) -> dict[str, Assignment]:
        return {
            name: self._assignment(name, variable, name in state.exported)
            for name, variable in state.variables.items()
        }

    def _assignment(self, name: str, variable: Variable, exported: bool) -> Assignment:
        elements = None
        value = None
        if variable.elements is not None:
            elements = tuple(None if e.condition else e.text for e in variable.elements)
        elif not any(atom.condition for atom in variable.atoms or ()):
            value = text_of(variable.atoms or ())
        return Assignment(name, value, variable.raw, variable.line, exported, elements)

    def writes(self) -> tuple[Write, ...]:
        """Redirections and the commands that make, copy or remove files, reached or not."""
        states = {i.node.start_byte: i.state for i in self.invocations}
        found: list[Write] = []
        self._collect(self.tree.root_node, states, found)
        return tuple(sorted(found, key=lambda write: write.line))

    def _collect(self, node: Node, states: dict[int, State], found: list[Write]) -> None:
        if node.type == "redirected_statement":
            self._redirects(node, states, found)
        elif node.type == "command":
            self._writer(node, states, found)
        for child in node.named_children:
            self._collect(child, states, found)

    def _redirects(self, node: Node, states: dict[int, State], found: list[Write]) -> None:
        body = node.child_by_field_name("body")
        state = _state_of(body, states) or self.end
        for redirect in node.children_by_field_name("redirect"):
            target = redirect.child_by_field_name("destination")
            operator = next((c.type for c in redirect.children if not c.is_named), "")
            if target is None or operator not in (">", ">>", "&>", "&>>", ">|", ">&"):
                continue
            if operator == ">&" and self.expander.raw(target).isdigit():
                continue
            self._add(target, operator, state, found)

    def _writer(self, node: Node, states: dict[int, State], found: list[Write]) -> None:
        name = node.child_by_field_name("name")
        if name is None or self.expander.raw(name) not in _WRITERS:
            return
        by = self.expander.raw(name)
        state = states.get(node.start_byte, self.end)
        targets = [
            word
            for word in node.children_by_field_name("argument")
            if not self.expander.raw(word).startswith("-")
        ]
        for target in targets[-1:] if by in _INTO_LAST else targets:
            self._add(target, by, state, found)

    def _add(self, target: Node, by: str, state: State, found: list[Write]) -> None:
        raw = self.expander.raw(target)
        if raw in _SILENT:
            return
        text = self.expander.text(target, state)
        found.append(Write(text, raw, self.expander.line(target), by))


_FIX_NOTHING = "give the script that holds the training command, or set `launch.command`"


def _errors(node: Node) -> Iterator[Node]:
    """Text that the grammar could not place, and what it missed."""
    if node.is_error or node.is_missing:
        yield node
    elif node.has_error:
        for child in node.children:
            yield from _errors(child)


def _state_of(node: Node | None, states: dict[int, State]) -> State | None:
    """The state at the first command inside a node."""
    if node is None:
        return None
    inside = [start for start in states if node.start_byte <= start < node.end_byte]
    return states[min(inside)] if inside else None
