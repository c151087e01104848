"""Hand-written softmax attention becomes one call of scaled_dot_product_attention."""

import re
from collections.abc import Mapping, Sequence

import libcst as cst

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.sdpa_attention_parts import Unfit, is_softmax, operands_of
from infrarsi.workspace.recipes.sdpa_attention_scale import ScaleReader
from infrarsi.workspace.recipes.sdpa_attention_scores import Trace
from infrarsi.workspace.recipes.source import (
    Edit,
    Source,
    dotted,
    literal,
    parse_all,
    rewritten,
    walk,
)
from infrarsi.workspace.recipes.source_flow import (
    BindingKind,
    Flow,
    bound_names,
    parameter_names,
)

_SDPA = "torch.nn.functional.scaled_dot_product_attention"
_CASTS = {"to", "type_as", "float", "half", "bfloat16", "double"}
_CACHE = re.compile(r"cache|past|memory|memories", re.IGNORECASE)
_KEY_VALUE_CACHE = re.compile(
    r"\b(kv_?cache|past_key|past_kv|layer_past|use_cache|k_cache|cache_k|key_cache)\w*"
)
_BENIGN = {"device", "dtype", "shape", "size", "ndim", "dim"}
_MAX_LINE = 100


class SdpaAttention:
    """Replaces attention that is provably plain: full or causal, scaled by 1/sqrt(head size).

    The result differs from the old code by rounding only. A scale that is not proven by the shape
    of the keys is passed on as `scale=`, in the words of the code. Masks and unused modules stay in
    `__init__`, so that checkpoints and initial values stay the same. A softmax taken in float32
    and cast back fits: the kernels accumulate in float32 too.
    """

    name = "sdpa_attention"
    family = "attention_backend"
    title = "hand-written attention becomes F.scaled_dot_product_attention"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        blocker = _blocker(sources)
        if blocker is not None:
            return blocker
        changed: dict[str, str] = {}
        notes: list[str] = []
        reasons: list[str] = []
        for source in sources:
            edits = _edits(sources, source, notes, reasons)
            text = rewritten(source, edits)
            if isinstance(text, Declined):
                return text
            if edits:
                changed[source.path] = text
        if changed:
            return Applied(changed, (*notes, *(f"{reason} (left as it is)" for reason in reasons)))
        return Declined(reasons[0] if reasons else _nothing(sources))


def _blocker(sources: Sequence[Source]) -> Declined | None:
    for source in sources:
        for call in source.nodes(cst.Call):
            where = source.where(call)
            for arg in call.args:
                if (
                    arg.keyword
                    and arg.keyword.value == "create_graph"
                    and (literal(arg.value) is not False)
                ):
                    return Declined(f"{where}: the job differentiates twice (`create_graph`)")
            name = source.qualified(call.func)
            if name == "torch.use_deterministic_algorithms":
                return Declined(f"{where}: the job asks for deterministic kernels")
    return None


def _nothing(sources: Sequence[Source]) -> str:
    for source in sources:
        calls = source.calls(_SDPA)
        if calls:
            return f"{source.where(calls[0])}: already calls scaled_dot_product_attention"
    path = sources[0].path if sources else "no Python file"
    return f"{path}:1: no softmax attention is written out in the editable files"


def _edits(
    sources: Sequence[Source], source: Source, notes: list[str], reasons: list[str]
) -> list[Edit]:
    edits: list[Edit] = []
    explained: set[cst.CSTNode] = set()
    taken: set[cst.CSTNode] = set()
    needs_import = False
    for product in source.nodes(cst.BaseExpression):  # type: ignore[type-abstract]  # a filter
        function = source.function(product)
        if function is None or operands_of(source, product) is None:
            continue
        site = _Site(sources, source, function, product)
        try:
            softmax = site.softmax()
            if softmax is None:
                continue
            explained.add(softmax)
            site_edits = site.edits()
        except Unfit as unfit:
            explained.update(s for s in [site.found_softmax] if s is not None)
            reasons.append(str(unfit))
            continue
        if taken & site.statements:
            continue
        taken |= site.statements
        edits += site_edits
        notes.append(site.note())
        needs_import |= site.needs_import
    for call in source.nodes(cst.Call):
        if is_softmax(source, call) and call not in explained and source.function(call):
            reasons.append(f"{source.where(call)}: the softmax is not just multiplied by values")
    if needs_import:
        edits += [e for e in [source.add_import("import torch.nn.functional as F")] if e]
    return edits


class _Site:
    """One candidate product, from the trace to the edits."""

    def __init__(
        self,
        sources: Sequence[Source],
        source: Source,
        function: cst.FunctionDef,
        product: cst.CSTNode,
    ) -> None:
        assert isinstance(product, cst.BaseExpression)
        self.sources = sources
        self.source = source
        self.function = function
        self.product = product
        self.flow = Flow(source, function)
        around = source.enclosing(function, cst.ClassDef, cst.FunctionDef)
        self.owner = around if isinstance(around, cst.ClassDef) else None
        self.trace = Trace(sources, self.flow, self.owner, product)
        self.found_softmax: cst.Call | None = None
        self.statements: set[cst.CSTNode] = set()
        self.needs_import = False

    def softmax(self) -> cst.Call | None:
        """The softmax before the product, if there is one; raises Unfit."""
        found = self.trace.softmax()
        if found is None:
            return None
        self.found_softmax, self.at = found
        return self.found_softmax

    def edits(self) -> list[Edit]:
        """The edits that replace the attention; raises Unfit."""
        assert self.found_softmax is not None
        self.found = found = self.trace.attention(self.found_softmax, self.at)
        if self.source.calls(_SDPA, under=self.function):
            raise self._unfit("the function already calls scaled_dot_product_attention")
        if self.flow.in_loop(self.product):
            raise self._unfit("the attention is computed inside a loop")
        if found.has_modules and any("register_forward_" in s.text for s in self.sources):
            raise self._unfit("a forward hook may look at its layers")
        scale = ScaleReader(self.sources, self.flow, self.owner, found)
        scale.read()
        if found.is_causal:
            self._check_lengths()
        call = self._call("" if scale.is_default else scale.code())
        helpers = self._removable([*found.helpers, *scale.helpers], call)
        self._check_operands(scale)
        self._check_uses(helpers)
        self.statements = {*found.removed, *found.rewritten, found.final}
        edits = [self.source.remove_lines(s) for s in [*found.removed, *helpers]]
        for _, scaled, plain in found.rewritten.values():
            start, end = self.source.outer_span(plain)
            new = self.source.text[start:end]
            edits.append(Edit(*self.source.outer_span(scaled), new))
        return [*edits, Edit(*self.source.outer_span(found.product), call)]

    def note(self) -> str:
        """One line for the report."""
        kind = "causal" if self.found.is_causal else "full"
        lost = ", softmax was in float32" if self.found.upcast else ""
        where = self.source.where(self.product)
        return f"{where}: {kind} attention by scaled_dot_product_attention{lost}"

    def _unfit(self, why: str, node: cst.CSTNode | None = None) -> Unfit:
        return Unfit(f"{self.source.where(node or self.product)}: {why}")

    # The new code

    def _call(self, scale: str) -> str:
        found = self.found
        swap = ".transpose(1, 2)" if found.heads_last else ""
        operands = [self.source.code(n) + swap for n in (found.query, found.key, found.value)]
        arguments = [*operands]
        if found.is_causal:
            arguments.append("is_causal=True")
        if scale:
            arguments.append(f"scale={scale}")
        name = self.source.reach(_SDPA, self.product)
        if name is None:
            if self.source.scope(self.product) is None or not self._is_free("F"):
                raise self._unfit("torch.nn.functional cannot be imported as `F` here")
            self.needs_import = True
            name = "F.scaled_dot_product_attention"
        text = f"{name}({', '.join(arguments)}){swap}"
        start, end = self.source.outer_span(found.product)
        before = self.source.text[:start].rsplit("\n", 1)[-1]
        after = self.source.text[end:].split("\n", 1)[0]
        longest = max(map(len, self.source.text.splitlines()))
        line = before + text.split("\n")[0] + after.split("#")[0].rstrip()
        if len(line) <= max(_MAX_LINE, longest):
            return text
        indent = self.source.indent(found.final)
        step = self.source.module.default_indent
        broken = f"{self.source.newline}{indent}{step}"
        inner = ", ".join(arguments)
        if len(indent + step + inner) > _MAX_LINE:
            inner = f",{broken}".join(arguments) + ","
        return f"{name}({broken}{inner}{self.source.newline}{indent}){swap}"

    def _is_free(self, name: str) -> bool:
        return not any(
            isinstance(n, cst.Name) and n.value == name for n in walk(self.source.module)
        )

    # Proofs on the surroundings

    def _check_lengths(self) -> None:
        """Queries and keys have the same positions: nothing is put in front of the keys.

        With one query and many keys the old mask hides nothing, and `is_causal` all but one key.
        """
        for source in self.sources:
            found = _KEY_VALUE_CACHE.search(source.text)
            if found is not None:
                line = source.text.count("\n", 0, found.start()) + 1
                raise Unfit(f"{source.path}:{line}: `{found[0]}` may make keys longer than queries")
        for name in parameter_names(self.function):
            if _CACHE.search(name):
                raise self._unfit(f"`{name}` may make keys longer than queries", self.function)
        for operand in (self.found.query, self.found.key):
            self._check_length(operand, self.found.at, set())

    def _check_length(self, node: cst.CSTNode, at: cst.CSTNode, seen: set[cst.CSTNode]) -> None:
        for part in walk(node):
            if isinstance(part, cst.Call) and self._lengthens(part):
                raise self._unfit(f"`{self.source.code(part)}` may make keys longer", part)
            if isinstance(part, cst.Name | cst.Attribute) and _CACHE.search(dotted(part)):
                raise self._unfit(f"`{dotted(part)}` may make keys longer than queries", part)
            if not isinstance(part, cst.Name):
                continue
            bound = self.flow.reaching(part.value, at)
            statement = bound.statement
            if statement is None or statement in seen:
                continue
            seen.add(statement)
            if bound.kind is BindingKind.UNKNOWN:
                self._check_length(statement, statement, seen)
                self._check_length(part, statement, seen)
            elif bound.value is not None:
                self._check_length(bound.value, statement, seen)

    def _lengthens(self, call: cst.Call) -> bool:
        if self.source.qualified(call.func) not in ("torch.cat", "torch.concat", "torch.hstack"):
            return False
        dims = [a.value for a in call.args if a.keyword and a.keyword.value in ("dim", "axis")]
        dims += [a.value for a in call.args[1:2] if not a.keyword]
        return not dims or literal(dims[0]) != -1

    def _removable(
        self, helpers: Sequence[cst.SimpleStatementLine], call: str
    ) -> list[cst.SimpleStatementLine]:
        """Statements that only build the mask or the scale, and are of no use to anything else."""
        candidates = [h for h in dict.fromkeys(helpers) if h not in self.found.removed]
        kept = True
        while kept:
            kept = False
            for helper in list(candidates):
                names = bound_names(helper)
                gone = {*self.found.removed, *candidates}
                if (
                    len(names) != 1
                    or any(
                        not self._inside(use, gone) for name in names for use in self._uses(name)
                    )
                    or any(re.search(rf"\b{name}\b", call) for name in names)
                ):
                    candidates.remove(helper)
                    kept = True
        return candidates

    def _uses(self, name: str) -> list[cst.Name]:
        return self.flow.occurrences(name)

    def _inside(self, node: cst.CSTNode, statements: set[cst.SimpleStatementLine]) -> bool:
        if self.source.statement(node) in statements:
            return True
        return node in walk(self.found.product)

    def _check_operands(self, scale: ScaleReader) -> None:
        """Queries, keys and scale have the same values at the end as where they were used."""
        found = self.found
        block = list(self.flow.block(found.final))
        chain = [block.index(s) for s in [*found.removed, found.at] if s in block]
        between = block[min([*chain, block.index(found.final)]) : block.index(found.final)]
        others = [s for s in between if s not in found.removed and s not in found.rewritten]
        moved: list[cst.CSTNode] = [found.query, found.key]
        if not scale.is_default:
            moved += [factor.node for factor in found.factors]
        names = {n.value for node in moved for n in walk(node) if isinstance(n, cst.Name)}
        for statement in others:
            clash = names & bound_names(statement)
            if clash:
                raise self._unfit(f"`{min(clash)}` is changed in between", statement)
        for node in (found.query, found.key, found.value):
            self._check_operand(node, bool(others))
        used = names | {n.value for n in walk(found.value) if isinstance(n, cst.Name)}
        if used & found.score_names - {dotted(found.query), dotted(found.key)}:
            raise self._unfit("the operands read the scores")

    def _check_operand(self, node: cst.BaseExpression, is_moved: bool) -> None:
        for call in (n for n in walk(node) if isinstance(n, cst.Call)):
            method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
            if method in _CASTS and node is not self.found.value:
                raise self._unfit(f"`{self.source.code(node)}` changes the dtype", node)
            is_view = method in ("transpose", "permute", "view", "reshape", "contiguous")
            if is_moved and not is_view and node is not self.found.value:
                raise self._unfit(f"`{self.source.code(node)}` is computed elsewhere", node)

    def _check_uses(self, helpers: Sequence[cst.SimpleStatementLine]) -> None:
        """Scores and weights are read by nothing but the attention itself."""
        gone = {*self.found.removed, *helpers}
        final = self.found.final
        operands = {dotted(self.found.query), dotted(self.found.key)}
        changed = {**self.found.removed, **{s: n for s, (n, _, _) in self.found.rewritten.items()}}
        for name in set(changed.values()):
            own = [s for s, n in changed.items() if n == name]
            first = min(self.source.span(s)[0] for s in own)
            rebinds = name in bound_names(final)
            for use in self._uses(name):
                start = self.source.span(use)[0]
                if start < first or self._inside(use, {*gone, *self.found.rewritten}):
                    continue
                is_later = start > self.source.span(final)[1]
                is_target = self.source.statement(use) is final and isinstance(
                    self.source.parent(use), cst.AssignTarget
                )
                if is_target or (rebinds and is_later) or self._is_benign(use, operands):
                    continue
                raise self._unfit(f"`{name}` is used outside the attention too", use)

    def _is_benign(self, use: cst.Name, operands: set[str]) -> bool:
        above = self.source.parent(use)
        is_fact = isinstance(above, cst.Attribute) and above.attr.value in _BENIGN
        return use.value in operands and is_fact
