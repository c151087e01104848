"""How far honest changes and small cheats take a real job from its reference, on this machine.

    python benchmarks/bands.py examples/ddp_gpt --keep receipts/
    python benchmarks/bands.py examples/ddp_gpt --keep receipts/ --judge-only

Runs the example (grown by `--size gpu` to 85 million parameters) and a list of changes of it under
the witness, audit runs with `--timed` timed ones too, and prints what the checks of numbers say of
each: found and allowed. `--bf16` first makes the reference itself compute in bf16 autocast. Runs go
side by side (`--jobs`), since numbers are judged here and never times. Receipts are kept, so that
bands can be judged again without running anything.
"""

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from infrarsi.contract import (
    Candidate,
    ExecutionRequest,
    ExecutionResult,
    Project,
    RunKind,
    SnapshotRef,
)
from infrarsi.draft import draft
from infrarsi.node.local_bench import LocalBench
from infrarsi.verify import judge, reference_evidence
from infrarsi.workspace.overlay import overlay
from infrarsi.workspace.recipes import recipes
from infrarsi.workspace.recipes.combine import NotCombined, combine
from infrarsi.workspace.snapshot import take
from infrarsi.workspace.sources import Sources

CHECKS = (
    "loss_within_tolerance",
    "grad_norm_within_tol",
    "optimizer_steps",
    "precision",
    "same_model",
    "same_data",
    "eval_matches",
)
SIZES = {
    "tiny": {"n-layer": 1, "n-embd": 32, "n-head": 2, "max-steps": 12, "eval-every": 6},
    "cpu": {},
    "gpu": {
        "n-layer": 12,
        "n-head": 12,
        "n-embd": 768,
        "block-size": 512,
        "batch-size": 8,
        "grad-accum": 2,
        "max-steps": 30,
        "eval-every": 15,
    },
}
STEP = "        optimizer.step()\n"
BATCH = "            x, y = next(batches)\n"
CALL = "            loss = model(x, y) / args.grad_accum\n"
TOP = "\n\ndef parse_args"


@dataclass(frozen=True)
class Variant:
    """One change: recipes, (flag, value) pairs of train.sh, or (file, old, new) edits."""

    name: str
    recipes: tuple[str, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    edits: tuple[tuple[str, str, str], ...] = ()


def honest(micro: tuple[tuple[str, str], ...]) -> list[Variant]:
    """Changes that leave the job what it is."""
    return [
        Variant("again"),
        Variant("sdpa", ("sdpa_attention",)),
        Variant("fused", ("fused_optimizer",)),
        Variant("compile", ("compile_model",)),
        Variant("micro_batch", flags=micro),
        Variant("no_sync", ("ddp_no_sync",)),
        Variant("all", ("sdpa_attention", "fused_optimizer", "zero_grad", "compile_model"), micro),
    ]


CHEATS = [
    Variant("lr x 1.01", flags=(("lr", "1.01e-3"),)),
    Variant("lr x 1.05", flags=(("lr", "1.05e-3"),)),
    Variant("clip x 0.5", flags=(("grad-clip", "0.5"),)),
    Variant("no weight decay", flags=(("weight-decay", "0.0"),)),
    Variant("beta2 0.951", edits=(("train.py", "0.95)", "0.951)"),)),
    Variant(
        "skip step 9",
        edits=(("train.py", STEP, "        if step != 9:\n            optimizer.step()\n"),),
    ),
    Variant(
        "batch again at 9",
        edits=(
            (
                "train.py",
                BATCH,
                BATCH + "            x, y = (x, y) if step != 9 else kept\n"
                "            kept = (x, y)\n",
            ),
        ),
    ),
    Variant(
        "tf32",
        edits=(("train.py", TOP, "\n\ntorch.backends.cuda.matmul.allow_tf32 = True\n" + TOP),),
    ),
    Variant(
        "bf16 autocast",
        edits=(
            (
                "train.py",
                CALL,
                "            with torch.autocast(device.type, dtype=torch.bfloat16):\n    " + CALL,
            ),
        ),
    ),
    Variant(
        "bf16 weights",
        edits=(
            ("train.py", "model = GPT(args).to(device)", "model = GPT(args).to(device).bfloat16()"),
        ),
    ),
    Variant(
        "one gradient halved",
        edits=(("train.py", STEP, "        decay[3].grad.mul_(0.5)\n" + STEP),),
    ),
    Variant(
        "loss x 0.99",
        edits=(("train.py", "/ args.grad_accum\n", "* 0.99 / args.grad_accum\n"),),
    ),
]


def prepared(folder: Path, into: Path, size: str, bf16: bool) -> tuple[Project, SnapshotRef]:
    """The contract and the snapshot of a grown copy of the example."""
    import shutil

    copy = into / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("out", "__pycache__"))
    script = copy / "train.sh"
    script.write_text(with_flags(script.read_text(), SIZES[size].items()))
    if size == "gpu":
        script.write_text(script.read_text().replace("NPROC:-2", "NPROC:-1"))
    if bf16:
        train = copy / "train.py"
        change = next(v for v in CHEATS if v.name == "bf16 autocast").edits[0]
        train.write_text(train.read_text().replace(change[1], change[2]))
    project = draft(copy / "train.sh").project
    return project, take(copy, into / "store")


def with_flags(script: str, flags: object) -> str:
    """The launch script with each `--flag value` set; SystemExit for a flag that it lacks."""
    import re

    for flag, value in flags:  # type: ignore[attr-defined]
        script, count = re.subn(rf"(--{flag}) \S+", rf"\1 {value}", script)
        if count != 1:
            script = script.replace(" \\\n    --seed", f" \\\n    --{flag} {value} \\\n    --seed")
    return script


def run(
    project: Project, snapshot: SnapshotRef, variant: Variant, kind: RunKind, name: str, keep: Path
) -> ExecutionResult | None:
    """One execution, its receipt kept as `<name>.json`; None where the variant does not fit."""
    sources = Sources.of(snapshot)
    texts = {path: sources.text(path) for path in ("train.py", "model.py")}
    chosen = [recipe for recipe in recipes() if recipe.name in variant.recipes]
    files: dict[str, str] = {}
    if chosen:
        built = combine(chosen, texts)
        if isinstance(built, NotCombined):
            print(f"{variant.name}: {built.recipe}: {built.reason}")
            return None
        files = dict(built.files)
    for path, old, new in variant.edits:
        text = files.get(path, texts[path])
        if old not in text:
            print(f"{variant.name}: {path} has no {old!r}")
            return None
        files[path] = text.replace(old, new, 1)
    made = overlay(project, sources, Candidate.of())
    if variant.flags:
        script = made.files.get("train.sh") or sources.text("train.sh")
        files["train.sh"] = with_flags(script, variant.flags)
    request = ExecutionRequest(
        execution_id=name,
        kind=kind,
        snapshot=snapshot,
        overlay=replace(made, files={**made.files, **files}),
        receipt_dir=str(keep / "runs" / name),
        cache_dir=str(keep / "cache"),
        optimizer_steps=project.workload.optimizer_steps,
        ends_by=project.workload.ends_by,
        witness_key="5a" * 16,
        start_timeout_s=400.0,
        timeout_s=500.0,
    )
    with LocalBench() as bench:
        result = bench.start(request).wait()
    assert result is not None
    (keep / f"{name}.json").write_text(json.dumps(result.to_dict()))
    return result


def main() -> None:
    """Run, judge and print."""
    parser = argparse.ArgumentParser(description="How far changes take a job from its reference.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "bands")
    parser.add_argument("--size", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--timed", action="store_true", help="timed runs of honest changes too")
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--judge-only", action="store_true")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    micro = (("batch-size", "16" if args.size == "gpu" else "4"), ("grad-accum", "1"))
    good = honest(micro)
    kinds = [RunKind.AUDIT] + [RunKind.TIMED] * args.timed
    plan = [
        (Variant("reference"), kind, f"reference-{number}-{kind}")
        for number, kind in enumerate(
            (RunKind.TIMED, RunKind.AUDIT, RunKind.TIMED, RunKind.PERTURBED)
        )
    ]
    plan += [(v, kind, f"{_slug(v.name)}-{kind}") for v in good for kind in kinds]
    plan += [(v, RunKind.AUDIT, f"{_slug(v.name)}-audit") for v in CHEATS]
    plan = [p for p in plan if p[0].name == "reference" or args.only in p[0].name]
    with tempfile.TemporaryDirectory(prefix="bands") as temp:
        project, snapshot = prepared(args.folder, Path(temp), args.size, args.bf16)
        if not args.judge_only:
            with ThreadPoolExecutor(args.jobs) as pool:
                list(pool.map(lambda p: run(project, snapshot, *p, args.keep), plan))
    results = {
        name: ExecutionResult.from_dict(json.loads((args.keep / f"{name}.json").read_text()))
        for _, _, name in plan
        if (args.keep / f"{name}.json").exists()
    }
    for name, result in results.items():
        if result.outcome != "ok":
            print(f"{name}: {result.outcome}: {result.reason}\n{result.log_tail[-600:]}")
    evidence = reference_evidence([r for n, r in results.items() if n.startswith("reference-")])
    for name, result in results.items():
        verdict = judge(evidence, result, project)
        is_good = any(name.startswith(_slug(v.name) + "-") for v in good)
        known = is_good or name.startswith("reference-")
        right = verdict.same_job == known
        print(f"{'  ' if right else '!!'} {name}: {'same job' if verdict.same_job else 'rejected'}")
        for check in CHECKS:
            print(f"       {check:22s} {verdict[check].status:11s} {verdict[check].reason}")
    sys.stdout.flush()


def _slug(name: str) -> str:
    return name.replace(" ", "_").replace(".", "_")


if __name__ == "__main__":
    main()
