"""Everything that is read out of a script at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node, Tree

from infrarsi.errors import UserError
from infrarsi.scripts.atoms import Char, Field, Hole, computed, guard, text_of, unguard
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.grammar import parse
from infrarsi.scripts.interpreter import Interpreter, Invocation, Site
from infrarsi.scripts.launching import Launched, is_launcher, raw_of, recognise
from infrarsi.scripts.missing import no_training
from infrarsi.scripts.model import (
    Assignment,
    Mount,
    ScriptCall,
    TrainingCommand,
    Wrapping,
    Write,
)
from infrarsi.scripts.nested import InnerExpander, Text
from infrarsi.scripts.redirects import Redirect
from infrarsi.scripts.spelling import Edit
from infrarsi.scripts.state import State, Variable
from infrarsi.scripts.wrapping import Chain, on_host

_WRITERS = ("tee", "mkdir", "touch", "rm", "rmdir", "cp", "mv", "ln", "rsync")
_INTO_LAST = ("cp", "mv", "ln", "rsync")
_HARMLESS = ("chmod", "cat", "echo", "ls", "head", "bash", "sh", "rm")  # to a script of a heredoc
_SILENT = ("/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty")


@dataclass(frozen=True)
class Reading:
    """A parsed script: the tree, what it runs, and the state at its end."""

    expander: Expander
    tree: Tree
    invocations: tuple[Invocation, ...]
    sites: tuple[Site, ...]
    redirects: tuple[Redirect, ...]
    end: State
    where: str
    forced: Mapping[str, str] | None = None
    outer: "Outer | None" = None

    @classmethod
    def of(
        cls,
        source: bytes,
        path: str,
        where: str,
        root: str,
        environ: Mapping[str, str | None],
        arguments: tuple[str | None, ...] | None,
        forced: Mapping[str, str] | None = None,
    ) -> "Reading":
        """Parse and walk; a `forced` variable has its value from the start and keeps it."""
        known = {name: value for name, value in environ.items() if value is not None}
        expander = Expander(source, path, root, known)
        tree = parse(source)
        state = State(positional=None if arguments is None else _positional(arguments))
        for name in environ.keys() - known.keys():
            state.exported |= {name}
            state.forget(name, f"${name}", 0)
        interpreter = Interpreter(expander, forced)
        end = interpreter.run(tree.root_node, state)
        return cls(
            expander,
            tree,
            tuple(interpreter.invocations),
            tuple(interpreter.sites),
            tuple(interpreter.redirects),
            end,
            where,
            forced,
        )

    @cached_property
    def inner(self) -> tuple["Reading", ...]:
        """The scripts that stand in words of this one: `bash -c "..."`, `eval "..."`, ssh."""
        depth, outer = 0, self.outer
        while outer is not None:
            depth, outer = depth + 1, outer.reading.outer
        if depth >= _MAX_DEPTH:
            return ()
        chains = [(i, Chain.of(i.fields, is_launcher)) for i in self.invocations]
        texts = [
            self._inside(invocation, chain, chain.texts, chain.text_arguments)
            for invocation, chain in chains
            if chain.texts is not None and recognise(invocation, self.expander) is None
        ]
        for invocation, chain in chains:
            written, words = self._heredoc_of(invocation, chain), chain.script_words()
            if written is not None and written.text is not None and words is not None:
                field = Field(written.text, self.expander.line(written.node))
                texts.append(self._inside(invocation, chain, (field,), tuple(words[1:])))
            read = chain.read_arguments() if invocation.given is not None else None
            if invocation.given is not None and read is not None:
                field = Field(invocation.given, self.expander.line(invocation.node))
                texts.append(self._inside(invocation, chain, (field,), read))
        return tuple(texts)

    def _heredoc_of(self, invocation: Invocation, chain: Chain) -> Redirect | None:
        """The heredoc that writes the script that a command starts, if that is its whole text."""
        words = chain.script_words()
        path = None if words is None or chain.texts is not None else words[0].text
        if path is None or chain.remote is not None:
            return None
        resolve = self.expander.folders.resolve
        place = resolve(path, chain.folder(invocation.state.cwd, resolve))
        parts = [r for r in self.redirects if place is not None and r.path == place]
        alone = len(parts) == 1 and parts[0].is_certain and not parts[0].appends
        if not alone or parts[0].text is None:
            return None
        for other in self.invocations:
            cwd, names = other.state.cwd, [f.text for f in other.fields]
            given = any(name is not None and resolve(name, cwd) == place for name in names[1:])
            inside = parts[0].node.start_byte <= other.node.start_byte < parts[0].node.end_byte
            if given and not inside and names[0] not in _HARMLESS and other is not invocation:
                return None  # it may be changed there
        return parts[0]

    @property
    def started_heredocs(self) -> frozenset[str]:
        """The files of heredocs that are started as scripts, and read as such."""
        chains = [(i, Chain.of(i.fields, is_launcher)) for i in self.invocations]
        found = [self._heredoc_of(invocation, chain) for invocation, chain in chains]
        own = {redirect.path for redirect in found if redirect is not None and redirect.path}
        return frozenset(own).union(*(inner.started_heredocs for inner in self.inner))

    def _inside(
        self,
        invocation: Invocation,
        chain: Chain,
        fields: tuple[Field, ...],
        arguments: tuple[Field, ...] | None,
    ) -> "Reading":
        """The text of a command as a script of its own, in the state that it is started in."""
        text = Text.of(fields, self.expander.line_at)
        environ = self.expander.environ
        passed = chain.environment(dict.fromkeys(environ))
        before = invocation.state
        exported = {n: v for n, v in before.variables.items() if n in before.exported}
        variables = {
            name: _variable_of(name, found) if isinstance(found, Field) else found
            for name, found in chain.environment(exported).items()
        }
        kept = before.variables if chain.is_eval else variables
        folder = chain.folder(before.cwd, self.expander.folders.resolve)
        state = State(
            variables={**kept, **text.unknown},
            functions=dict(before.functions) if chain.is_eval else {},
            exported=frozenset(variables) if not chain.is_eval else before.exported,
            unset=before.unset,
            positional=before.positional if chain.is_eval else arguments,
            cwd=None if chain.remote is not None else folder,
        )
        expander = InnerExpander(
            text, self.expander, chain.mounts(), {n: v for n, v in environ.items() if n in passed}
        )
        tree = parse(text.source)
        interpreter = Interpreter(expander, self.forced, invocation)
        end = interpreter.run(tree.root_node, state)
        return Reading(
            expander,
            tree,
            tuple(interpreter.invocations),
            tuple(interpreter.sites),
            tuple(interpreter.redirects),
            end,
            self.where,
            self.forced,
            Outer(self, invocation, chain, text),
        )

    def holder(self) -> "Reading":
        """The reading that holds the training command itself: this one or one inside it."""
        return self._chosen()[0]

    def outward(self, edits: list[Edit], name: str) -> list[Edit]:
        """Edits of this reading as edits of the whole script.

        Raises UserError where a text is put together from several places.
        """
        reading = self
        while reading.outer is not None:
            found = reading.outer.text.outward(edits, reading.outer.reading.expander.source)
            if found is None or not reading.outer.owns(found):
                raise UserError(
                    f"`{name}` cannot be changed inside the text that `{reading.outer.name}` gets, "
                    "because it is put together from several places",
                    where=f"{self.where}:{reading.outer.line}",
                    fix="put the text into a script file of its own, or write it out in one place",
                )
            edits, reading = found, reading.outer.reading
        return edits

    def launched(self) -> Launched:
        """The training command taken apart; raises UserError if there is none or no single one."""
        return self._chosen()[1]

    def _found(self) -> list[tuple["Reading", Launched]]:
        own = [x for i in self.invocations if (x := recognise(i, self.expander)) is not None]
        return [(self, x) for x in own] + [pair for inner in self.inner for pair in inner._found()]

    def _chosen(self) -> tuple["Reading", Launched]:
        found = self._found()
        if not found:
            raise UserError(
                no_training(self.invocations, self.expander, self.end),
                where=self.where,
                fix=_FIX_NOTHING,
            )
        best = max(x.rank for _, x in found)
        found = [pair for pair in found if pair[1].rank == best]
        certain = [pair for pair in found if not pair[1].invocation.condition]
        chosen = certain or found
        if len({(id(r.outer), x.invocation.node.start_byte) for r, x in chosen}) > 1:
            lines = sorted({r.expander.line(x.invocation.node) for r, x in chosen})
            listed = ", ".join(str(line) for line in lines)
            raise UserError(
                f"{len(chosen)} commands may start the training, in lines {listed}",
                where=f"{self.where}:{lines[0]}",
                fix="make a script that starts only the one to be optimised",
            )
        reading, launched = chosen[-1]
        reading._check_syntax(launched)
        return reading, launched

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
        if len(runs) > 1 or any(i.in_loop for i in runs):
            return True
        return self.outer is not None and self.outer.is_repeated

    def training_command(self) -> TrainingCommand:
        """The public form of `launched`."""
        reading, launched = self._chosen()
        return reading._public(launched)

    def programs(self) -> tuple[TrainingCommand, ...]:
        """Every command that starts a Python program, each once, in the order of its lines."""
        each = {(id(r.outer), x.invocation.node.start_byte): (r, x) for r, x in self._found()}
        found = [reading._public(launched) for reading, launched in each.values()]
        return tuple(sorted(found, key=lambda command: command.line))

    def calls(self) -> tuple[ScriptCall, ...]:
        """Other scripts that this one runs, each once."""
        found: dict[int, ScriptCall] = {}
        for invocation in self.invocations:
            chain = Chain.of(invocation.fields, is_launcher)
            words = chain.script_words()
            if words is None or chain.texts is not None:
                continue
            if self._heredoc_of(invocation, chain) is not None:
                continue
            state = invocation.state
            environment = {n: a for n, a in self._assignments(state).items() if a.exported}
            found[invocation.node.start_byte] = ScriptCall(
                self._outside(words[0].text, chain),
                tuple(None if w.condition else w.text for w in words[1:]),
                {
                    n: self._given(n, x) if isinstance(x, Field) else x
                    for n, x in chain.environment(environment).items()
                },
                chain.folder(state.cwd, self.expander.folders.resolve),
                self.expander.line(invocation.node),
                self._wrappings(chain),
                self._mounts(chain),
            )
        return tuple(found.values()) + tuple(c for inner in self.inner for c in inner.calls())

    def _wrappings(self, chain: Chain) -> tuple[Wrapping, ...]:
        if self.outer is None:
            return chain.public()
        return self.outer.reading._wrappings(self.outer.chain) + chain.public()

    def _mounts(self, chain: Chain) -> tuple[Mount, ...]:
        around = self.outer.reading._mounts(self.outer.chain) if self.outer is not None else ()
        return around + chain.mounts()

    def _public(self, launched: Launched) -> TrainingCommand:
        state = launched.invocation.state
        entry = launched.module or launched.entry.text
        cwd = launched.chain.folder(state.cwd, self.expander.folders.resolve)
        return TrainingCommand(
            launcher=launched.launcher,
            launcher_options=tuple(s.argument for s in launched.options),
            entry=entry,
            entry_raw=raw_of(launched.entry, self.expander),
            script=self._script(entry, launched, cwd),
            is_module=launched.is_module or launched.module is not None,
            arguments=tuple(s.argument for s in launched.slots),
            line=self.expander.line(launched.invocation.node),
            environment=self._environment(launched),
            cwd=cwd,
            repeated=self.is_repeated(launched),
            wrappings=self._wrappings(launched.chain),
            mounts=self._mounts(launched.chain),
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
        if launched.is_module or launched.module is not None:
            return self.expander.folders.resolve(entry.replace(".", "/") + ".py", cwd)
        entry = self._outside(entry, launched.chain) or entry
        return self.expander.folders.resolve(entry, cwd)

    def _outside(self, path: str | None, chain: Chain) -> str | None:
        """A path that may be one of a container, as the host has it."""
        outside = on_host(path or "", self._mounts(chain))
        return path if outside is None else outside

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


@dataclass(frozen=True, eq=False)
class Outer:
    """Where an inner script stands: the reading around it, the command, and its text."""

    reading: Reading
    invocation: Invocation
    chain: Chain
    text: Text

    @property
    def name(self) -> str:
        """The command that runs the text."""
        return self.invocation.fields[0].text or "a shell"

    @property
    def line(self) -> int:
        """The line of that command."""
        return self.reading.expander.line(self.invocation.node)

    @property
    def is_repeated(self) -> bool:
        """Whether that command runs more than once."""
        start = self.invocation.node.start_byte
        runs = [i for i in self.reading.invocations if i.node.start_byte == start]
        again = self.reading.outer is not None and self.reading.outer.is_repeated
        return len(runs) > 1 or any(i.in_loop for i in runs) or again

    def owns(self, edits: list[Edit]) -> bool:
        """Whether no other command gets what the edits touch."""
        node = self.invocation.node
        outside = [e for e in edits if not node.start_byte <= e.start <= e.end <= node.end_byte]
        for other in self.reading.invocations:
            command = other.fields[0].text if other.fields else None
            if other.node.start_byte == node.start_byte or command in ("echo", "printf"):
                continue
            places = [a for f in other.fields for a in f.atoms if isinstance(a, Char)]
            for edit in outside:
                if any(a.start <= edit.end and edit.start <= a.end for a in places):
                    return False
        return True


def _positional(arguments: tuple[str | None, ...]) -> tuple[Field, ...]:
    """What a script is called with."""
    return tuple(
        Field((Hole(f"${number}", 0),) if text is None else guard(computed(text)), 0)
        for number, text in enumerate(arguments, start=1)
    )


def _variable_of(name: str, field: Field) -> Variable:
    """A variable that a word `NAME=value` of a wrapper gives."""
    atoms = unguard(field.atoms[len(name) + 1 :])
    raw = field.text or field.known_prefix
    return Variable(atoms, None, raw, field.line, exported=True)


_MAX_DEPTH = 4
_FIX_NOTHING = (
    "give the script that holds the training command, or the command itself with --command"
)


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
