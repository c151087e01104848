"""Walking through a script as the shell would, without running anything."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tree_sitter import Node

from infrarsi.scripts.atoms import Atoms, Field, Hole, computed, text_of, unguard
from infrarsi.scripts.conditions import assumed_to_succeed, truth
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.redirects import Redirect, filled_by, redirects_of
from infrarsi.scripts.state import State, Variable, merge

_MAX_DEPTH = 20
_DECLARING = ("export", "declare", "typeset", "local", "readonly")
SETS_UP = re.compile(r"activate|bashrc|profile|conda|modules|setvars|venv")
_FILLING = ("read", "mapfile", "readarray", "getopts", "printf")


@dataclass(frozen=True)
class Site:
    """One assignment as written; `certain` unless a condition or loop decides whether it runs."""

    name: str
    node: Node
    value: Node | None
    certain: bool


@dataclass(frozen=True)
class Invocation:
    """One command that the script runs, with all it receives.

    `words` are the source words in the order of `fields`, `statement` the node of the whole
    statement that it belongs to. `condition` is "" where it certainly runs. `given` is the heredoc
    that it reads.
    """

    node: Node
    statement: Node
    words: tuple[Node, ...]
    fields: tuple[Field, ...]
    prefix: tuple[Site, ...]
    state: State
    condition: str
    in_loop: bool
    given: Atoms | None = None


class Interpreter:
    """Runs over a syntax tree and collects `invocations` and assignment `sites`.

    A `forced` variable is exported with its value from the start; assignments do not change it.
    `inside` is the command of an outer script that runs this one.
    """

    def __init__(
        self,
        expander: Expander,
        forced: Mapping[str, str] | None = None,
        inside: "Invocation | None" = None,
    ) -> None:
        self.expander = expander
        self.forced = {
            n: Variable(computed(v), None, v, 0, True) for n, v in (forced or {}).items()
        }
        self.invocations: list[Invocation] = []
        self.sites: list[Site] = []
        self.redirects: list[Redirect] = []
        self._conditions = [inside.condition] if inside is not None and inside.condition else []
        self._loops = 1 if inside is not None and inside.in_loop else 0
        self._depth = 0
        self._statement: Node | None = None

    def run(self, root: Node, state: State) -> State:
        """Walk a program; the state at its end."""
        state.variables.update(self.forced)
        state.exported |= self.forced.keys()
        self._block(root, state)
        return state

    # -- statements

    def _block(self, node: Node, state: State) -> None:
        for child in node.named_children:
            self._statement = child
            self._walk(child, state)
            if state.ended:
                return

    def _walk(self, node: Node, state: State) -> None:
        kind = node.type
        if kind == "command":
            self._command(node, state, ())
        elif kind == "redirected_statement":
            self._redirected(node, state)
        elif kind in ("variable_assignment", "variable_assignments"):
            for site in [node] if kind == "variable_assignment" else node.named_children:
                self._assign(site, state, exported=False)
        elif kind == "declaration_command":
            self._declare(node, state)
        elif kind == "unset_command":
            self._unset(node, state)
        elif kind == "list":
            self._list(node, state)
        elif kind == "if_statement":
            self._if(node, state)
        elif kind == "case_statement":
            self._case(node, state)
        elif kind in ("for_statement", "c_style_for_statement", "while_statement"):
            self._loop(node, state)
        elif kind == "function_definition":
            self._define(node, state)
        elif kind in ("subshell", "pipeline"):
            self._apart(node, state)
        elif kind in ("compound_statement", "do_group"):
            if not self.expander.raw(node).startswith("(("):
                self._block(node, state)
        elif kind == "negated_command":
            self._walk(node.named_children[0], state)

    def _apart(self, node: Node, state: State) -> None:
        """Subshells and parts of a pipeline: nothing comes back from them."""
        statement = self._statement
        if node.type == "subshell":
            self._block(node, state.copy())
        else:
            for child in node.named_children:
                self._statement = statement
                self._walk(child, state.copy())
        self._statement = statement

    def _redirected(self, node: Node, state: State) -> None:
        body = node.child_by_field_name("body")
        extra: list[Node] = []
        for redirect in node.children_by_field_name("redirect"):
            extra.extend(redirect.children_by_field_name("destination")[1:])
            extra.extend(redirect.children_by_field_name("argument"))
        certain = not self._conditions and not self._loops
        self.redirects += redirects_of(node, self.expander, state, is_certain=certain)
        if body is None:
            return
        if body.type == "command":
            here = [c for c in node.children if c.type == "heredoc_redirect"]
            given = self.expander.document(here[-1], state) if here else None
            self._command(body, state, tuple(extra), given)
        else:
            self._walk(body, state)
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "heredoc_redirect":
                self._behind(redirect, state)

    def _behind(self, heredoc: Node, state: State) -> None:
        """What stands in the line of a heredoc behind it: `cat <<EOF | tee x`, `... && cmd`."""
        statement = self._statement
        for child in heredoc.named_children:
            before = child.prev_sibling
            if child.type == "pipeline":
                self._walk(child, state)
            elif before is not None and before.type == "&&":
                self._statement = child
                self._walk(child, state)
        self._statement = statement

    def _list(self, node: Node, state: State) -> None:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        statement = self._statement
        known = truth(left, self.expander, state)
        self._walk(left, state)
        self._statement = statement
        if state.ended:
            return
        if known is None and assumed_to_succeed(left, self.expander):
            known = True
        if known is not None:
            if known == (operator == "&&"):
                self._walk(right, state)
            return
        before = state.copy()
        self._under(left, right, state)
        if not (state.ended and operator == "&&"):
            condition = self._where(left)
            ended_alone = state.ended
            state.become(merge([before, state], condition, self.expander.line(left)))
            state.ended = state.ended and not ended_alone

    def _under(self, condition: Node, body: Node, state: State) -> None:
        self._conditions.append(self._where(condition))
        self._walk(body, state)
        self._conditions.pop()

    def _where(self, node: Node) -> str:
        raw = " ".join(self.expander.raw(node).split())
        return f"`{raw[:60]}` in line {self.expander.line(node)}"

    def _if(self, node: Node, state: State) -> None:
        branches, otherwise = _clauses(node)
        results: list[State] = []
        asked: list[Node] = []
        decided = False
        for tests, body in branches:
            known = truth(tests[-1], self.expander, state) if tests else None
            for test in tests:
                if test.type not in ("test_command",):
                    self._walk(test, state)
            if known is False:
                continue
            asked.append(tests[-1] if tests else node)
            if known is True and not results:
                self._nodes(body, state)
                return
            inside = state.copy()
            self._conditions.append(self._where(asked[-1]))
            self._nodes(body, inside)
            self._conditions.pop()
            results.append(inside)
            if known is True:
                decided = True
                break
        if not results:
            self._nodes(otherwise, state)
            return
        if not decided:
            inside = state.copy()
            self._conditions.append(self._where(asked[-1]))
            self._nodes(otherwise, inside)
            self._conditions.pop()
            results.append(inside)
        state.become(merge(results, self._where(asked[0]), self.expander.line(asked[0])))

    def _nodes(self, nodes: list[Node], state: State) -> None:
        for node in nodes:
            self._statement = node
            self._walk(node, state)
            if state.ended:
                return

    def _case(self, node: Node, state: State) -> None:
        subject = node.child_by_field_name("value")
        text = self.expander.text(subject, state) if subject is not None else None
        results: list[State] = []
        for item in node.named_children:
            if item.type != "case_item":
                continue
            patterns = item.children_by_field_name("value")
            body = [c for c in item.named_children if c not in patterns]
            if text is not None:
                if any(fnmatchcase(text, self.expander.raw(p).strip("\"'")) for p in patterns):
                    self._nodes(body, state)
                    return
                continue
            inside = state.copy()
            self._conditions.append(self._where(subject or node))
            self._nodes(body, inside)
            self._conditions.pop()
            results.append(inside)
        if results:
            where = self._where(subject or node)
            state.become(merge([*results, state.copy()], where, self.expander.line(node)))

    def _loop(self, node: Node, state: State) -> None:
        condition = node.children_by_field_name("condition")
        if node.type == "while_statement" and condition:
            until = node.children[0].type == "until"
            if truth(condition[0], self.expander, state) is until:
                return
        variable = node.child_by_field_name("variable")
        inside = state.copy()
        where = f"the loop in line {self.expander.line(node)}"
        if variable is not None:
            inside.forget(self.expander.raw(variable), where, self.expander.line(node))
        body = node.child_by_field_name("body") or node.named_children[-1]
        self._loops += 1
        self._conditions.append(where)
        self._walk(body, inside)
        self._conditions.pop()
        self._loops -= 1
        for name, value in inside.variables.items():
            if state.variables.get(name) != value:
                inside.forget(name, where, self.expander.line(node))
        inside.ended = False
        state.become(merge([state.copy(), inside], where, self.expander.line(node)))

    def _define(self, node: Node, state: State) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[self.expander.raw(name)] = body

    # -- assignments

    def _assign(self, node: Node, state: State, *, exported: bool, local: bool = False) -> Site:
        target = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        assert target is not None
        name = self.expander.raw(target)
        site = Site(name, node, value, not self._conditions and not self._loops)
        self.sites.append(site)
        if target.type == "subscript":
            base = self.expander.raw(target.named_children[0])
            state.forget(base, self.expander.raw(node), self.expander.line(node))
            return site
        appends = any(child.type == "+=" for child in node.children)
        own = self._variable(name, node, value, state, appends, exported)
        state.variables[name] = self.forced.get(name, own)
        state.unset -= {name}
        if exported:
            state.exported |= {name}
        return site

    def _variable(
        self, name: str, node: Node, value: Node | None, state: State, appends: bool, exported: bool
    ) -> Variable:
        raw, line = self.expander.raw(node), self.expander.line(node)
        before = state.variables.get(name) if appends else None
        exported = exported or name in state.exported
        if value is not None and value.type == "array":
            elements = tuple(
                found
                for word in value.named_children
                if word.type != "comment"
                for found in self.expander.fields(word, state)
            )
            kept: tuple[Field, ...] = ()
            if before is not None:
                kept = before.elements if before.elements is not None else _as_element(before)
            return Variable(None, kept + elements, raw, line, exported)
        atoms = unguard(self.expander.atoms(value, state)) if value is not None else ()
        if before is not None:
            if before.elements is not None:
                return Variable((Hole(raw, line),), None, raw, line, exported)
            atoms = (before.atoms or ()) + atoms
        return Variable(atoms, None, raw, line, exported)

    def _declare(self, node: Node, state: State) -> None:
        words = [self.expander.raw(c) for c in node.named_children if c.type == "word"]
        exported = node.children[0].type == "export" or "-x" in words
        unexport = "-n" in words
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, state, exported=exported)
            elif child.type == "variable_name":
                name = self.expander.raw(child)
                if exported and unexport:
                    state.exported -= {name}
                elif exported:
                    state.exported |= {name}

    def _unset(self, node: Node, state: State) -> None:
        for child in node.named_children:
            name = self.expander.raw(child)
            state.variables.pop(name, None)
            state.exported -= {name}
            state.unset |= {name}

    # -- commands

    def _command(
        self, node: Node, state: State, extra: tuple[Node, ...], given: Atoms | None = None
    ) -> None:
        words = list(node.children_by_field_name("name"))
        words += [*node.children_by_field_name("argument"), *extra]
        before, prefix = assignments_of(node, self.expander.source)
        for site in before:
            self._assign(site, state, exported=False)
        words.sort(key=lambda word: word.start_byte)
        fields: list[Field] = []
        origin: list[Node] = []
        for word in words:
            found = self.expander.fields(word.named_children[0] if _named(word) else word, state)
            fields.extend(found)
            origin.extend([word] * len(found))
        inside = state.copy()
        sites = tuple(self._assign(site, inside, exported=True) for site in prefix)
        filled = filled_by(fields, given) if fields and given is not None else None
        if filled is not None:
            name, atoms = filled
            own = Variable(
                atoms,
                None,
                self.expander.raw(node),
                self.expander.line(node),
                name in state.exported,
            )
            state.variables[name] = self.forced.get(name, own)
            state.unset -= {name}
            return
        if fields and self._builtin(fields, state, node):
            return
        command = fields[0].text if fields else None
        if command in state.functions:
            self._call(state.functions[command], fields, inside, state)
            return
        self.invocations.append(
            Invocation(
                node,
                self._statement or node,
                tuple(origin),
                tuple(fields),
                sites,
                inside,
                self._conditions[-1] if self._conditions else "",
                self._loops > 0,
                given,
            )
        )

    def _call(self, body: Node, fields: list[Field], inside: State, state: State) -> None:
        if self._depth >= _MAX_DEPTH:
            return
        positional, functions = state.positional, state.functions
        called = inside if inside.exported != state.exported else state
        called.positional = tuple(fields[1:])
        statement, self._depth = self._statement, self._depth + 1
        self._walk(body, called)
        self._statement, self._depth = statement, self._depth - 1
        called.ended = False
        called.positional, called.functions = positional, {**functions, **called.functions}

    def _builtin(self, fields: list[Field], state: State, node: Node) -> bool:
        """Commands that change the shell itself; True if nothing else needs to be recorded."""
        name = fields[0].text
        if name in ("exit", "return"):
            state.ended, state.ended_at = True, self.expander.line(node)
            return True
        if name in ("cd", "pushd"):
            path = fields[-1].text if len(fields) > 1 else None
            state.cwd = self.expander.folders.resolve(path, state.cwd) if path is not None else None
        elif name in ("source", ".") and len(fields) > 1:
            if not SETS_UP.search(self.expander.raw(node)):
                state.sourced = f"`{self.expander.raw(node)}` in line {self.expander.line(node)}"
        elif name == "popd":
            state.cwd = None
        elif name == "shift" and state.positional is not None:
            amount = fields[1].text if len(fields) > 1 else "1"
            known = amount is not None and amount.isdigit()
            state.positional = state.positional[int(amount or "1") :] if known else None
        elif name == "set" and len(fields) > 1 and fields[1].text == "--":
            state.positional = tuple(fields[2:])
        elif name in _FILLING:
            line = self.expander.line(node)
            for found in fields[1:]:
                text = text_of(found.atoms) or ""
                if text.isidentifier() and (name != "printf" or "-v" in _texts(fields)):
                    state.forget(text, f"`{name}` in line {line}", line)
        return False


def assignments_of(command: Node, source: bytes) -> tuple[list[Node], list[Node]]:
    """The assignments in the lines before a command, and those that stand in front of it.

    The grammar takes `A=1 B=2` and the command in the next line for one command.
    """
    before: list[Node] = []
    found: list[Node] = []
    end = command.start_byte
    for child in command.children:
        if b"\n" in source[end : child.start_byte].replace(b"\\\n", b""):
            before, found = before + found, []
        if child.type != "variable_assignment" and child.type != "comment":
            break
        if child.type == "variable_assignment":
            found.append(child)
        end = child.end_byte
    return before, found


def _texts(fields: list[Field]) -> list[str | None]:
    return [found.text for found in fields]


def _named(word: Node) -> bool:
    return word.type == "command_name" and len(word.named_children) == 1


def _as_element(variable: Variable) -> tuple[Field, ...]:
    return (Field(variable.atoms or (), variable.line),)


def _clauses(node: Node) -> tuple[list[tuple[list[Node], list[Node]]], list[Node]]:
    """The branches of an if statement: (conditions, body) of each, and the body of its else."""
    branches: list[tuple[list[Node], list[Node]]] = []
    otherwise: list[Node] = []
    tests: list[Node] = []
    body: list[Node] = []
    then = False
    for child in node.children:
        if child.type == "then":
            then = True
        elif child.type == "elif_clause":
            inner, _ = _clauses(child)
            branches.extend(inner)
        elif child.type == "else_clause":
            otherwise = list(child.named_children)
        elif child.is_named:
            (body if then else tests).append(child)
    branches.insert(0, (tests, body))
    return branches, otherwise
