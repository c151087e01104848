"""REPORT.md: a run for a person. Everything comes from the journal; no statistic is computed."""

import re
from typing import Any

from infrarsi.contract import CHECKS, LAYERS, Status, Verdict
from infrarsi.contract.secrecy import without_secrets
from infrarsi.contract.wording import counted, why_stopped
from infrarsi.report.expectations import expectations
from infrarsi.report.recipes import recipes_table
from infrarsi.report.tables import gib, seconds, speedup, table
from infrarsi.report.warnings import noise_warning, planned_note
from infrarsi.runs import RunState, TrialLine, costs_of

_MOST_TOUCHES = 60
_ODDS = re.compile(r"; fits: (\d+%), runs: (\d+%)")  # as the hypothesis searcher writes it


def report(state: RunState, *, patch: str = "", run: str = "") -> str:
    """The whole report; `patch` is the promoted candidate's diff, `run` names it in commands."""
    run = run or state.started.get("run_id", "")
    parts = [
        f"# InfraRSI report: {state.started.get('name', '?')}",
        _headline(state, run),
        _failure(state),
        noise_warning(state.reference.get("step_log_sd")),
        _change(state, patch, run),
        _touches(state),
        _same_job(state),
        _reference(state),
        _trials(state),
        expectations(state),
        _verification(state),
        recipes_table(state),
        _cost(state),
        _environment(state),
    ]
    return without_secrets("\n\n".join(part for part in parts if part)) + "\n"


def _headline(state: RunState, run: str) -> str:
    promoted = state.promoted_id
    if promoted is None:
        return _unfinished(state, run) if state.finished is None else _nothing(state)
    winner = state.verified[promoted]
    confidence = f"{100 * state.started.get('confidence', 0.95):.0f} %"
    lines = [
        f"**Verified: {speedup(winner['speedup'])} faster**, between {speedup(winner['low'])} and "
        f"{speedup(winner['high'])} with {confidence} confidence, from "
        f"{counted(len(state.pairs_of(promoted)), 'back-to-back pair')} of runs against the "
        "untouched job.",
    ]
    if winner.get("net_speedup") is not None:
        planned = state.started.get("planned_steps")
        net = f"Over the planned {planned} optimizer steps, one-off costs included: "
        net += speedup(winner["net_speedup"])
        if winner.get("break_even_step"):
            net += f"; the change has paid for itself by step {winner['break_even_step']}"
        lines.append(net + ".")
    lines.append(planned_note(state.started, winner))
    lines.append(_longer(state, promoted))
    return "\n".join(line for line in lines if line)


def _longer(state: RunState, candidate_id: str) -> str:
    """What the longer run showed; its speed-up is one pair's, shown beside the verified one."""
    found = state.long_runs.get(candidate_id)
    if found is None:
        return ""
    if found["status"] == "not_covered":
        return f"Longer run: not covered: {found['reason']}."
    ratio = f", {speedup(found['speedup'])} in that one pair" if found.get("speedup") else ""
    return f"Longer run of {found['steps']} steps: {found['reason']}{ratio}."


def _unfinished(state: RunState, run: str) -> str:
    resume = f"`infrarsi run --resume {run}`"
    if not state.reference:
        if state.failed:
            return f"**Not finished: the job as it is could not be measured.** Then: {resume}."
        return f"**Not finished.** The job as it is has not been measured yet; go on with {resume}."
    if not state.ranking and not any(line.trial.same_job for line in state.trials):
        return f"**Not finished.** Nothing was found yet; go on with {resume}."
    return (
        f"**Not finished.** Complete it with `infrarsi finish {run}`, or go on searching with "
        f"{resume}; until then nothing is recommended."
    )


def _failure(state: RunState) -> str:
    """The error that ended the run, as the terminal had it."""
    if not state.failed or state.finished is not None:
        return ""
    where, what = state.failed.get("where"), state.failed["what"]
    head, _, rest = f"{where}: {what}".partition("\n") if where else what.partition("\n")
    lines = [f"It ended with an error: {head}"]
    if rest:
        lines.append(f"```\n{rest}\n```")
    if state.failed.get("fix"):
        lines.append(f"Fix: {state.failed['fix']}.")
    return "## The error\n\n" + "\n\n".join(lines)


def _nothing(state: RunState) -> str:
    head = "**Nothing is recommended; your setup stays as it is.** "
    reasons = [
        f"{state.candidates[candidate_id].describe()}: {entry['reason']}."
        for candidate_id, entry in state.verified.items()
    ]
    if reasons:
        return head + "What was verified: " + " ".join(reasons)
    if state.counted_trials:
        return head + "No trial was faster and the same job."
    return head + f"Nothing was tried: {_ended(state)}."


def _ended(state: RunState) -> str:
    if state.stopped_by is None:
        return "the search has not ended"
    return why_stopped(state.stopped_by, state.started.get("budget", {}))


def _change(state: RunState, patch: str, run: str) -> str:
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
        out.append(
            f"Show it with `infrarsi apply {run}`, write it with `infrarsi apply --write {run}`."
        )
    return "\n\n".join(out)


def _touches(state: RunState) -> str:
    candidate = state.candidates.get(state.promoted_id or "")
    if candidate is None or candidate.patch is None or not candidate.patch.touches:
        return ""
    touches = candidate.patch.touches
    rows = [
        (
            f"`{touch.path}:{touch.line}`",
            ", ".join(touch.areas),
            f"{'-' if touch.removed else '+'} {_code(touch.text)}",
        )
        for touch in touches[:_MOST_TOUCHES]
    ]
    left = len(touches) - len(rows)
    note = f"\n\nNot shown: {counted(left, 'more line')}." if left else ""
    head = (
        "## What the change touches\n\nFound by reading the code, without running it: the changed "
        "lines that have to do with what is trained, how it is timed, or what is written. `-` is a "
        "line of today's."
    )
    return f"{head}\n\n{table(('place', 'area', 'line'), rows)}{note}"


def _code(text: str) -> str:
    """Code in a cell; more backticks than it has itself."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`"


def _same_job(state: RunState) -> str:
    entry = state.verified.get(state.promoted_id or "")
    if entry is None:
        coverage = state.reference.get("coverage", {})
        if not coverage:
            return ""
        rows = [(check, coverage.get(check, "-")) for check in CHECKS]
        rows.sort(key=lambda row: row[1] != "covered")
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
        f"\n\nNot judged on this job, and so counted for nothing: {counted(left, 'check')}; "
        "the table says why."
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
        ("difference between runs of the same job", f"{100 * facts['step_log_sd']:.2f} %"),
        ("smallest gain that pairs can show", f"{100 * facts['resolvable_gain']:.1f} %"),
        ("waiting for a DataLoader in a step", _share(facts, "data")),
        ("from start to first steady step", seconds(facts["one_off_s"])),
        ("peak memory of a rank", gib(facts["peak_bytes"])),
        ("model FLOPs utilization (at least)", _percent(facts.get("mfu"))),
        ("samples per update", facts["samples_per_update"]),
        ("elements per update", elements or None),
    ]
    return "## The reference\n\n" + table(("", ""), [row for row in rows if row[1] is not None])


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _share(facts: dict[str, Any], phase: str) -> str | None:
    spent_s = facts.get("phases_s", {}).get(phase)
    if spent_s is None:
        return None
    return f"{seconds(spent_s)} ({100 * spent_s / facts['step_time_s']:.0f} %)"


def _trials(state: RunState) -> str:
    if not state.trials:
        return ""
    base = state.reference.get("step_time_s")
    rows = [_trial_row(state, line, base) for line in state.trials]
    head = f"## What was tried\n\n{counted(state.counted_trials, 'trial')}; {_ended(state)}."
    names = ("#", "change", "outcome", "speed-up*", "peak", "same job", "why tried")
    note = "\\* One run each, not verified: only the figure at the top of this page is."
    return f"{head}\n\n{table(names, rows)}\n\n{note}"


def _trial_row(state: RunState, line: TrialLine, base: float | None) -> tuple[object, ...]:
    trial = line.trial
    candidate = state.candidates.get(line.candidate_id)
    same = {True: "yes", False: f"no: {trial.reason}", None: "-"}[trial.same_job]
    ratio = base / trial.step_time_s if base and trial.step_time_s else None
    outcome = str(trial.outcome)
    if trial.outcome == "patch_failed" and not trial.device_s:
        outcome = f"not run: {trial.reason}"  # a combination that does not go together: no fault
    elif trial.outcome != "ok" or (trial.same_job and trial.reason):
        outcome += f": {trial.reason}"
    return (
        trial.number,
        candidate.describe() if candidate else _values(trial.point, state),
        outcome,
        speedup(ratio),
        gib(trial.peak_bytes),
        same,
        _plain(line.why),
    )


def _plain(why: str) -> str:
    """Why a trial was tried, without the model's own words."""
    odds = _ODDS.search(why)
    if odds is None:
        return why
    doubts = [
        f"{chance} likely to {what}"
        for chance, what in zip(odds.groups(), ("fit in memory", "run"), strict=True)
        if chance != "100%"
    ]
    words = _ODDS.sub("".join(f"; {doubt}" for doubt in doubts), why)
    words = words.replace(" its speed expected", " the speed of the best so far expected")
    return words.replace("suspect of a failure", "which may be why an earlier trial failed")


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
        word = "verified" if entry["decision"] == "promote" else "not recommended"
        out.append(f"**{candidate.describe()}**: {word}; {entry['reason']}.")
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
        if candidate_id != state.promoted_id and _longer(state, candidate_id):
            out.append(_longer(state, candidate_id))
    return "\n\n".join(out)


def _cost(state: RunState) -> str:
    costs = costs_of(state)
    device = "GPU" if any(e.nodes and e.nodes[0].get("gpus") for e in state.executions) else "node"
    rows = [
        (use, f"{hours:.3f}", seconds(3600 * hours))
        for use, hours in (
            ("reference", costs.reference_h),
            ("search", costs.search_h),
            ("failed trials", costs.failed_h),
            ("verification", costs.verification_h),
            ("all", costs.total_h),
        )
    ]
    llm = state.started.get("llm", {}).get("backend", "none")
    own_s = costs.overhead_per_trial_s
    between = (
        f" InfraRSI's own time between two trials: {seconds(own_s)} (median)." if own_s else ""
    )
    lines = [
        "## What it cost",
        table(("use", f"{device}-hours", f"{device} time"), rows),
        f"Wall time: {seconds(state.wall_s)}.{between} Language model: {llm}, no tokens.",
    ]
    idle = _without_effect(state)
    if idle:
        lines.append(f"Set, but without effect in this version: {', '.join(idle)}.")
    return "\n\n".join(lines)


def _without_effect(state: RunState) -> list[str]:
    """Settings of infrarsi.yaml that are accepted and not yet used."""
    budget = state.started.get("budget", {})
    names = [f"`search.budget.{name}`" for name in ("llm_tokens", "llm_usd") if name in budget]
    return names + (["`experience`"] if state.started.get("experience") else [])


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
            "## Where it ran",
            table(("node", "CPUs", "GPU", "GPUs"), rows),
            f"InfraRSI {version}, run `{state.started.get('run_id')}`, project digest "
            f"`{str(state.started.get('snapshot', ''))[:19]}`.",
        )
    )
