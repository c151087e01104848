"""REPORT.md: a run for a person. Everything comes from the journal; no statistic is computed."""

from typing import Any

from infrarsi.contract import CHECKS, LAYERS, Status, Verdict
from infrarsi.report.tables import gib, seconds, speedup, table
from infrarsi.runs import RunState, TrialLine, costs_of


def report(state: RunState, *, patch: str = "") -> str:
    """The whole report; `patch` is the promoted candidate's diff."""
    parts = [
        f"# InfraRSI report: {state.started.get('name', '?')}",
        _headline(state),
        _change(state, patch),
        _same_job(state),
        _reference(state),
        _trials(state),
        _verification(state),
        _recipes(state),
        _cost(state),
        _environment(state),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(state: RunState) -> str:
    promoted = state.promoted_id
    if promoted is None:
        if state.finished is None:
            return (
                "**Not finished.** Complete it with `infrarsi finish`; until then nothing is "
                "recommended."
            )
        why = "; ".join(entry["reason"] for entry in state.verified.values())
        return "**Nothing is recommended; your setup stays as it is.** " + (
            f"What was verified: {why}." if why else "No trial was faster and the same job."
        )
    winner = state.verified[promoted]
    lines = [
        f"**Verified: {speedup(winner['speedup'])} faster** "
        f"[{winner['low']:.3f}, {winner['high']:.3f}] at "
        f"{100 * state.started.get('confidence', 0.95):.0f} % confidence, from "
        f"{len(state.pairs_of(promoted))} back-to-back pairs against the untouched job.",
    ]
    if winner.get("net_speedup") is not None:
        planned = state.started.get("planned_steps")
        net = f"Over the planned {planned} steps, one-off costs included: "
        net += speedup(winner["net_speedup"])
        if winner.get("break_even_step"):
            net += f"; it breaks even at step {winner['break_even_step']}"
        lines.append(net + ".")
    return "\n".join(lines)


def _change(state: RunState, patch: str) -> str:
    candidate = state.candidates.get(state.promoted_id or "")
    if candidate is None:
        return ""
    reference = {d["name"]: d["reference"] for d in state.space.get("dimensions", [])}
    rows = [(name, reference.get(name), value) for name, value in candidate.settings.items()]
    titles = {r["name"]: r for r in state.recipes}
    out = ["## The change"]
    if rows:
        out.append(table(("setting", "today", "recommended"), rows))
    if candidate.patch_names:
        notes = [
            f"- `{name}`: {titles.get(name, {}).get('title', '')}" for name in candidate.patch_names
        ]
        out.append("Code changes:\n\n" + "\n".join(notes))
    if patch:
        out.append(f"```diff\n{patch.rstrip()}\n```")
    applied = state.applied[-1] if state.applied else None
    if applied:
        out.append(f"Applied: {', '.join(f'`{f}`' for f in applied['files'])}.")
    else:
        out.append("Show it with `infrarsi apply`, write it with `infrarsi apply --write`.")
    return "\n\n".join(out)


def _same_job(state: RunState) -> str:
    entry = state.verified.get(state.promoted_id or "")
    if entry is None:
        coverage = state.reference.get("coverage", {})
        if not coverage:
            return ""
        rows = [(check, coverage.get(check, "-")) for check in CHECKS]
        return "## What can be checked on this job\n\n" + table(("check", "covered"), rows)
    verdict = Verdict.from_dict(entry["verdict"])
    layer_of: dict[str, str] = {
        check: layer for layer, checks in LAYERS.items() for check in checks
    }
    words = {
        Status.PASSED: "passed",
        Status.FAILED: "**failed**",
        Status.NOT_COVERED: "not covered",
    }
    judged = [(layer_of[r.check], r.check, words[r.status], r.reason) for r in verdict.results]
    head = f"## Still the same job: {verdict.passed} of {len(CHECKS)} checks passed"
    left = sum(r.status is Status.NOT_COVERED for r in verdict.results)
    note = (
        f"\n\n{left} checks are not covered on this job and count for nothing: read why below."
        if left
        else ""
    )
    return head + note + "\n\n" + table(("layer", "check", "result", "why"), judged)


def _reference(state: RunState) -> str:
    facts = state.reference
    if not facts:
        return ""
    elements = ", ".join(f"{k}: {v}" for k, v in facts["elements_per_update"].items())
    rows = [
        ("command", f"`{state.started.get('command')}`"),
        ("optimizer steps of a trial", state.started.get("optimizer_steps")),
        ("step time (median of steady steps)", seconds(facts["step_time_s"])),
        ("noise between launches", f"{100 * facts['step_log_sd']:.2f} %"),
        ("smallest gain that can be resolved", f"{100 * facts['resolvable_gain']:.1f} %"),
        ("start to first steady step", seconds(facts["one_off_s"])),
        ("peak memory of a rank", gib(facts["peak_bytes"])),
        ("samples per update", facts["samples_per_update"]),
        ("elements per update", elements or None),
    ]
    return "## The reference\n\n" + table(("", ""), rows)


def _trials(state: RunState) -> str:
    if not state.trials:
        return ""
    base = state.reference.get("step_time_s")
    rows = [_trial_row(state, line, base) for line in state.trials]
    head = f"## What was tried ({state.counted_trials} screens, ended by: {state.stopped_by})"
    names = ("#", "change", "outcome", "speed-up*", "peak", "same job", "why tried")
    note = "\\* single runs of the search, not verified; only the figure at the top is."
    return f"{head}\n\n{table(names, rows)}\n\n{note}"


def _trial_row(state: RunState, line: TrialLine, base: float | None) -> tuple[object, ...]:
    trial = line.trial
    candidate = state.candidates.get(line.candidate_id)
    same = {True: "yes", False: f"no: {trial.reason}", None: "-"}[trial.same_job]
    ratio = base / trial.step_time_s if base and trial.step_time_s else None
    outcome = str(trial.outcome)
    if trial.outcome != "ok":
        outcome += f": {trial.reason}"
    return (
        trial.number,
        candidate.describe() if candidate else _values(trial.point, state),
        outcome,
        speedup(ratio),
        gib(trial.peak_bytes),
        same,
        line.why,
    )


def _values(point: dict[str, Any], state: RunState) -> str:
    reference = {d["name"]: d["reference"] for d in state.space.get("dimensions", [])}
    return ", ".join(f"{k}={v}" for k, v in point.items() if reference.get(k) != v)


def _verification(state: RunState) -> str:
    if not state.verified and not state.pairs:
        return ""
    out = ["## Verification"]
    for candidate_id in state.ranking:
        candidate, entry = state.candidates[candidate_id], state.verified.get(candidate_id)
        if entry is None:
            continue
        out.append(f"{candidate.describe()}: **{entry['decision']}**, {entry['reason']}")
        rows = [
            (
                pair.index + 1,
                pair.order,
                seconds(pair.reference_step_s),
                seconds(pair.candidate_step_s),
                speedup(pair.reference_step_s / pair.candidate_step_s),
            )
            for pair in state.pairs_of(candidate_id)
        ]
        if rows:
            out.append(table(("pair", "order", "reference", "candidate", "ratio"), rows))
    return "\n\n".join(out)


def _recipes(state: RunState) -> str:
    if not state.recipes:
        return ""
    rows = [
        (f"`{r['name']}`", r["status"], r["reason"] or "; ".join(r.get("notes", ())))
        for r in state.recipes
    ]
    return "## Code recipes\n\n" + table(("recipe", "", "where or why not"), rows)


def _cost(state: RunState) -> str:
    costs = costs_of(state)
    device = "GPU" if any(e.nodes and e.nodes[0].get("gpus") for e in state.executions) else "node"
    rows = [
        ("reference", f"{costs.reference_h:.3f}"),
        ("search", f"{costs.search_h:.3f}"),
        ("failed trials", f"{costs.failed_h:.3f}"),
        ("verification", f"{costs.verification_h:.3f}"),
        ("**all**", f"**{costs.total_h:.3f}**"),
    ]
    llm = state.started.get("llm", {}).get("backend", "none")
    lines = [
        "## What it cost",
        table(("use", f"{device}-hours"), rows),
        f"Wall time {seconds(state.last_t - state.first_t)}; InfraRSI's own time between two "
        f"trials {seconds(costs.overhead_per_trial_s)} (median); language model: {llm}, no tokens.",
    ]
    return "\n\n".join(lines)


def _environment(state: RunState) -> str:
    nodes = {n["node_id"]: n for e in state.executions for n in e.nodes}
    rows = [
        (n["hostname"], n["cpus"], n.get("gpu_name") or "none", len(n.get("gpus") or ()))
        for n in nodes.values()
    ]
    if not rows:
        return ""
    version = state.started.get("version")
    return "\n\n".join(
        (
            "## Where",
            table(("node", "CPUs", "GPU", "GPUs"), rows),
            f"InfraRSI {version}, run `{state.started.get('run_id')}`, project digest "
            f"`{str(state.started.get('snapshot', ''))[:12]}`.",
        )
    )
