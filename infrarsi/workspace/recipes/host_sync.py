"""A loss is read from the device only where it is logged, not at every step."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.host_sync_loop import TrainingLoop, training_loops
from infrarsi.workspace.recipes.source import (
    Edit,
    Source,
    argument,
    dotted,
    literal,
    parse_all,
    rewritten,
    walk,
)
from infrarsi.workspace.recipes.source_flow import parameter_names

_WAITING = ("item", "tolist", "cpu", "numpy")
_ON_DEVICE = ".detach().double()"
_CLOCKS = re.compile(
    r"perf_counter|monotonic|process_time|\btime\(|time_ns|elapsed_time|timeit|[Tt]imer|profile"
    r"|now\("
)


_TARGETED = (
    cst.AssignTarget,
    cst.AugAssign,
    cst.AnnAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
)
_OTHER_BINDINGS = (cst.AsName, cst.Del, cst.MatchAs, cst.MatchStar, cst.Param, cst.FunctionDef)


@dataclass
class _Number:
    """A Python number that the loop computes from losses read at every step."""

    name: str
    reads: list[tuple[cst.BaseExpression, str]] = field(default_factory=list)  # node, new code
    statements: list[cst.CSTNode] = field(default_factory=list)
    feeds: set[str] = field(default_factory=set)  # numbers it is computed from


class HostSync:
    """Removes the wait for the device that reading a loss (or `synchronize`) costs every step.

    The number is kept on the device in double precision, as Python keeps it, and becomes a float
    where it is printed or used: the printed values stay the same at the same steps.
    """

    name = "host_sync"
    family = "host_sync"
    title = "the loss is read from the device only where it is logged"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        changed: dict[str, str] = {}
        notes: list[str] = []
        reasons: list[str] = []
        for source in sources:
            edits: list[Edit] = []
            for loop in training_loops(source):
                numbers = _Loop(loop, sources)
                edits += numbers.edits(notes, reasons)
                edits += _synchronize_edits(sources, loop, notes, reasons)
            text = rewritten(source, dict.fromkeys(edits))
            if isinstance(text, Declined):
                return text
            if edits:
                changed[source.path] = text
        if changed:
            return Applied(changed, (*notes, *(f"{reason} (left as it is)" for reason in reasons)))
        return Declined(reasons[0] if reasons else _nothing(sources))


def _nothing(sources: Sequence[Source]) -> str:
    for source in sources:
        for loop in training_loops(source):
            where = source.where(loop.loop)
            return f"{where}: already nothing in the loop waits for the device at every step"
    path = sources[0].path if sources else "no Python file"
    return f"{path}:1: no training loop with `backward()` is in the editable files"


class _Loop:
    """The numbers of one training loop."""

    def __init__(self, loop: TrainingLoop, sources: Sequence[Source]) -> None:
        self.loop = loop
        self.source = loop.source
        self.sources = sources
        self.direct, self.losses = loop.losses()
        self.numbers: dict[str, _Number] = {}
        self.problems: dict[str, str] = {}

    def edits(self, notes: list[str], reasons: list[str]) -> list[Edit]:
        """The edits for every number that may stay on the device."""
        if any(re.search(r"\bmps\b", source.text) for source in self.sources):
            reasons.append(f"{self.source.where(self.loop.loop)}: float64 is not there on `mps`")
            return []
        needed = [*self._collect(), *self._decisions(), *self._other_waits()]
        self._settle()
        needed += self.problems.values()
        reasons += needed
        if needed:  # the loop waits for the device anyway, so that nothing would be gained
            return []
        edits: list[Edit] = []
        for number in self.numbers.values():
            edits += [self.source.replace(node, code) for node, code in number.reads]
            edits += [
                self.source.replace(use, f"float({number.name})") for use in self._later(number)
            ]
            where = self.source.where(number.statements[0])
            notes.append(f"{where}: `{number.name}` stays on the device until it is logged")
        return edits

    # What reads a loss at every step

    def _collect(self) -> Iterator[str]:
        """Find the numbers; yields a reason for every read that is no plain sum or value."""
        handled: set[cst.CSTNode] = set()
        reads = [r for r in self._loss_reads() if self.loop.at_every_step(r[0])]
        for node, code in reads:
            number = self._number_of(node)
            if number is None:
                text = " ".join(self.source.code(self.source.statement(node)).split())[:60]
                yield f"{self.source.where(node)}: `{text}` needs the loss at every step"
                continue
            number.reads.append((node, code))
            handled.add(self.source.statement(node))
        for _ in range(3):
            self._collect_sums_of_numbers(handled)

    def _collect_sums_of_numbers(self, handled: set[cst.CSTNode]) -> None:
        """`total += loss_value`, where `loss_value` is such a number."""
        for augment in self.source.nodes(cst.AugAssign, self.loop.loop):
            statement = self.source.statement(augment)
            if statement in handled or not self.loop.at_every_step(augment):
                continue
            names = {n.value for n in self.source.nodes(cst.Name, augment.value)}
            fed = names & self.numbers.keys()
            if not fed or not isinstance(augment.operator, cst.AddAssign):
                continue
            name = dotted(augment.target)
            if "." in name or not name or not self._is_arithmetic(augment.value, None):
                continue
            number = self.numbers.setdefault(name, _Number(name))
            number.statements.append(statement)
            number.feeds |= fed
            handled.add(statement)

    def _loss_reads(self) -> list[tuple[cst.BaseExpression, str]]:
        """Every expression that reads a loss to the host, with its form on the device."""
        found: list[tuple[cst.BaseExpression, str]] = []
        for call in self.source.nodes(cst.Call, self.loop.loop):
            is_float = self.source.qualified(call.func) == "float" and len(call.args) == 1
            is_method = isinstance(call.func, cst.Attribute) and not call.args
            if is_float and not call.args[0].keyword:
                tensor, allowed = _tensor(call.args[0].value), self.direct
            elif is_method and isinstance(call.func, cst.Attribute):
                if call.func.attr.value not in ("item", "tolist"):
                    continue
                tensor, allowed = _tensor(call.func.value), self.losses
            else:
                continue
            if tensor is not None and _root(tensor) in allowed:
                found.append((call, self.source.code(tensor) + _ON_DEVICE))
        return found

    def _number_of(self, read: cst.BaseExpression) -> _Number | None:
        """The number that the statement of a read computes, if it is one that may wait."""
        statement = self.source.statement(read)
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return None
        small = statement.body[0]
        name = ""
        if isinstance(small, cst.AugAssign) and isinstance(small.operator, cst.AddAssign):
            name = dotted(small.target)
        elif isinstance(small, cst.Assign) and len(small.targets) == 1:
            name = dotted(small.targets[0].target)
        value = small.value if isinstance(small, cst.AugAssign | cst.Assign) else None
        if not name or "." in name or value is None or not self._is_arithmetic(value, read):
            return None
        number = self.numbers.setdefault(name, _Number(name))
        if statement not in number.statements:
            number.statements.append(statement)
        return number

    def _is_arithmetic(self, node: cst.BaseExpression, read: cst.BaseExpression | None) -> bool:
        """Whether only + - * / on names, numbers and sizes is applied to the loss."""
        if node is read or isinstance(node, cst.Name | cst.Integer | cst.Float):
            return True
        if isinstance(node, cst.Attribute):
            return bool(dotted(node))
        if isinstance(node, cst.BinaryOperation):
            plain = isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply | cst.Divide)
            return plain and all(self._is_arithmetic(n, read) for n in (node.left, node.right))
        if isinstance(node, cst.Subscript):
            return dotted(node.value).endswith(".shape")
        if isinstance(node, cst.Call):
            is_size = dotted(node.func).endswith((".size", ".numel"))
            is_read = any(node is r for r, _ in self._loss_reads())
            return is_read or is_size or self.source.qualified(node.func) == "len"
        return False

    def _decisions(self) -> Iterator[str]:
        """A reason for every branch that looks at a loss at every step."""
        branches = (cst.If, cst.IfExp, cst.While, cst.Assert)
        for node in walk(self.loop.loop):
            if not isinstance(node, branches) or not self.loop.at_every_step(node.test):
                continue
            names = {n.value for n in self.source.nodes(cst.Name, node.test)}
            is_identity = isinstance(node.test, cst.Comparison) and isinstance(
                node.test.comparisons[0].operator, cst.Is | cst.IsNot
            )
            if names & self.losses and not is_identity:
                yield f"{self.source.where(node)}: a branch needs the loss at every step"

    def _other_waits(self) -> Iterator[str]:
        """A reason for everything else that waits for the device at every step."""
        known = {node for read, _ in self._loss_reads() for node in walk(read)}
        for call in self.source.method_calls(*_WAITING, under=self.loop.loop):
            if call not in known and self.loop.at_every_step(call):
                text = " ".join(self.source.code(call).split())[:60]
                yield f"{self.source.where(call)}: `{text}` waits for the device at every step"

    # Whether the number may wait

    def _settle(self) -> None:
        """Drop numbers that something needs at every step, until none is left to drop."""
        while True:
            dropped = [n for n in self.numbers.values() if self._is_needed(n)]
            if not dropped:
                return
            for number in dropped:
                del self.numbers[number.name]

    def _is_needed(self, number: _Number) -> bool:
        reason = self._problem(number)
        if reason is not None:
            self.problems.setdefault(number.name, reason)
        return reason is not None

    def _problem(self, number: _Number) -> str | None:
        function = self.loop.flow.function
        where = self.source.where(number.statements[0])
        name = f"`{number.name}`"
        missing = number.feeds - self.numbers.keys()
        if missing:
            return f"{where}: {name} is computed from `{min(missing)}`, which is needed every step"
        if number.name in parameter_names(function):
            return f"{where}: {name} is a parameter of `{function.name.value}`"
        for node, _ in number.reads:
            changed = self._changed_in_place(node)
            if changed is not None:
                return f"{self.source.where(changed)}: the loss is changed in place afterwards"
        for use in self.loop.flow.occurrences(number.name):
            reason = self._use_problem(number, use)
            if reason is not None:
                return f"{self.source.where(use)}: {name} {reason}"
        return None

    def _use_problem(self, number: _Number, use: cst.Name) -> str | None:
        statement = self.source.statement(use)
        if self.source.function(use) is not self.loop.flow.function:
            return "is used in a nested function"
        if isinstance(self.source.parent(use), cst.NameItem):
            return "is global"
        if isinstance(self.source.parent(use), _OTHER_BINDINGS):
            return "is bound or deleted elsewhere"
        if self._is_target(use):
            return self._write_problem(number, use, statement)
        if statement in number.statements or self._feeds_another(statement):
            return None
        if self.loop.at_every_step(use):
            return "is used at every step"
        above = self.source.parent(use)
        if isinstance(above, cst.FormattedStringExpression) and above.equal is not None:
            return "is printed with its own source text"
        if isinstance(above, cst.Attribute | cst.Subscript) and above.value is use:
            return "is used as more than a number"
        return None

    def _write_problem(self, number: _Number, use: cst.Name, statement: cst.CSTNode) -> str | None:
        if statement in number.statements:
            return None
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(small, cst.AugAssign):
            scales = isinstance(small.operator, cst.DivideAssign | cst.MultiplyAssign)
            return None if scales and not self.loop.at_every_step(use) else "is changed elsewhere"
        value = small.value if isinstance(small, cst.Assign | cst.AnnAssign) else None
        holder = self.source.parent(use)
        if isinstance(holder, cst.Element) and isinstance(value, cst.Tuple):
            names = self.source.parent(holder)
            if not isinstance(names, cst.Tuple) or len(names.elements) != len(value.elements):
                return "is assigned elsewhere"
            value = value.elements[list(names.elements).index(holder)].value
        if isinstance(literal(value), int | float):
            return None
        reads_itself = value is not None and number.name in {
            n.value for n in self.source.nodes(cst.Name, value)
        }
        is_later = not self.loop.at_every_step(use)
        return None if reads_itself and is_later else "is assigned elsewhere"

    def _is_target(self, use: cst.Name) -> bool:
        inner: cst.CSTNode = use
        holder = self.source.parent(use)
        while isinstance(holder, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
            inner, holder = holder, self.source.parent(holder)
        return isinstance(holder, _TARGETED) and holder.target is inner

    def _feeds_another(self, statement: cst.CSTNode) -> bool:
        return any(statement in number.statements for number in self.numbers.values())

    def _changed_in_place(self, read: cst.BaseExpression) -> cst.CSTNode | None:
        """An operation that changes the tensor of a read after it was taken."""
        names = {n.value for n in self.source.nodes(cst.Name, read)} & self.losses
        for node in self.source.nodes(cst.AugAssign, self.loop.loop):
            if dotted(node.target) in names:
                return node
        for call in self.source.nodes(cst.Call, self.loop.loop):
            method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
            owner = call.func.value if isinstance(call.func, cst.Attribute) else call.func
            if method.endswith("_") and dotted(owner).split(".")[0] in names:
                return call
        return None

    def _later(self, number: _Number) -> list[cst.Name]:
        """The uses of a number away from the steps: there it becomes a float."""
        return [
            use
            for use in self.loop.flow.occurrences(number.name)
            if not self._is_target(use)
            and self.source.statement(use) not in number.statements
            and not self._feeds_another(self.source.statement(use))
        ]


def _tensor(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`loss` of `loss.detach().cpu()`: the tensor without what `double()` makes needless."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        if node.func.attr.value in ("detach", "cpu", "clone", "float"):
            return _tensor(node.func.value)
        return node if node.func.attr.value in ("mean", "sum") else None
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        return _tensor(node.value)
    return node if isinstance(node, cst.Name) else None


def _root(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return _root(node.func.value)
    return dotted(node)


def _synchronize_edits(
    sources: Sequence[Source], loop: TrainingLoop, notes: list[str], reasons: list[str]
) -> list[Edit]:
    """Remove `torch.cuda.synchronize()` at every step, where nothing is timed by it."""
    source = loop.source
    edits: list[Edit] = []
    for call in source.calls("torch.cuda.synchronize", under=loop.loop):
        where = source.where(call)
        if not loop.at_every_step(call):
            continue
        if _CLOCKS.search(source.code(loop.flow.function)):
            reasons.append(f"{where}: the steps are timed around `torch.cuda.synchronize()`")
            continue
        if any(_needs_order(s) for s in sources):
            reasons.append(f"{where}: other streams or asynchronous copies may rely on it")
            continue
        statement = _removable(source, call)
        if statement is None:
            reasons.append(f"{where}: `torch.cuda.synchronize()` is not a plain statement")
            continue
        edits.append(source.remove_lines(statement))
        notes.append(f"{where}: no wait for the device at every step")
    return edits


def _needs_order(source: Source) -> bool:
    if re.search(r"\bStream\(|cuda\.stream\(|current_stream|CUDAGraph|cuda\.graph", source.text):
        return True
    for call in source.nodes(cst.Call):
        is_asynchronous = literal(argument(call, "non_blocking")) is True
        if is_asynchronous and re.search(r"cpu", source.code(call)):
            return True
    return False


def _removable(source: Source, call: cst.Call) -> cst.CSTNode | None:
    """The statement of a call, or the whole `if` that holds nothing else; None if it is neither."""
    statement = source.statement(call)
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if not isinstance(small, cst.Expr) or small.value is not call:
        return None
    block = source.parent(statement)
    if not isinstance(block, cst.IndentedBlock):
        return None
    if len(block.body) > 1:
        return statement
    around = source.parent(block)
    if not isinstance(around, cst.If) or around.orelse is not None:
        return None
    holder = source.parent(around)
    alone = not isinstance(holder, cst.IndentedBlock) or len(holder.body) == 1
    calls = source.nodes(cst.Call, around.test)
    pure = all(source.qualified(c.func) == "torch.cuda.is_available" for c in calls)
    return around if pure and not alone else None
