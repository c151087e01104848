"""What a person gets wrong before anything runs: one message, exit code 2, nothing touched."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from spawned import INFRARSI, Done, Site

from infrarsi.cli.known import insist_on_known
from infrarsi.contract.files import load
from infrarsi.errors import UserError


def refused(site: Site, *arguments: str) -> str:
    """The message of a command that is refused with the user's files as they were."""
    before = site.tree()
    done = site.infrarsi(*arguments)
    assert done.code == 2, done.err
    assert site.tree() == before
    assert site.runs() == []
    return done.message


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `infrarsi init` writes for the job."""
    site = Site(tmp_path_factory.mktemp("draft"))
    site.fill()
    assert site.infrarsi("init", "job/train.sh").code == 0
    return (site.job / "infrarsi.yaml").read_text()


@pytest.fixture
def drafted(site: Site, draft: str) -> Site:
    """A job with an infrarsi.yaml."""
    site.fill()
    (site.job / "infrarsi.yaml").write_text(draft)
    return site


def edit(site: Site, old: str, new: str) -> int:
    """Replace a text of infrarsi.yaml; the line on which the new text begins."""
    path = site.job / "infrarsi.yaml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "script": (["optimize", "job/no.sh"], "job/no.sh: there is no such file or folder"),
        "shorthand": (["job/no.sh"], "job/no.sh: there is no such file or folder"),
        "bare name": (["no.sh"], "no.sh: there is no such file or folder"),
        "no contract": (["run", "job"], "job: there is no infrarsi.yaml"),
        "duration": (["job/train.sh", "--max-wallclock", "5x"], "`--max-wallclock` is '5x'"),
        "target": (["job/train.sh", "--target-speedup", "0.5"], "`--target-speedup` is 0.5, but"),
        "tolerance": (["job/train.sh", "--tolerance", "0"], "`--tolerance` is 0.0, but must be"),
        "model": (["job/train.sh", "--llm", "gpt"], "`--llm` is 'gpt', but this version"),
    }.values(),
    ids=str,
)
def test_a_wrong_call_makes_no_file(site: Site, arguments: list[str], message: str) -> None:
    site.fill()
    told = refused(site, *arguments)
    assert message in told
    assert "\n  fix: " in told
    assert not (site.job / "infrarsi.yaml").exists()


def test_an_option_of_another_kind_is_told_by_the_parser(site: Site) -> None:
    site.fill()
    done = site.infrarsi("optimize", "job/train.sh", "--screens", "many")
    assert (done.code, "'--screens'" in done.err, "Traceback" in done.err) == (2, True, False)


@pytest.mark.parametrize("command", ["report", "apply", "finish"])
def test_without_a_run_it_says_how_to_start_one(site: Site, command: str) -> None:
    assert "there is no run here" in (told := refused_without_job(site, command))
    assert "`infrarsi optimize`" in told


@pytest.mark.parametrize("command", ["report", "apply", "finish", "run --resume"])
def test_a_folder_that_is_no_run_is_named_with_those_that_are(site: Site, command: str) -> None:
    run = site.folder / ".infrarsi" / "runs" / "20260101-000000-aaaa"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("")
    done = site.infrarsi(*command.split(), "elsewhere")
    assert done.code == 2
    assert "elsewhere: this is not a run directory" in done.message
    assert str(run.relative_to(site.folder)) in done.message


def refused_without_job(site: Site, *arguments: str) -> str:
    done = site.infrarsi(*arguments)
    assert done.code == 2
    return done.message


def test_a_folder_without_a_script(site: Site) -> None:
    site.job.mkdir()
    assert "no launch script and no Python file that trains" in refused(site, "optimize", "job")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"\x7fELF\x02\x01\x00", "train.sh: this is not a text file"),
        (b"\xff\xfe\x00#", "train.sh:1: the file begins with a byte order mark (UTF-16)"),
    ],
    ids=["elf", "utf16"],
)
def test_a_program_is_not_taken_for_a_script(site: Site, content: bytes, fact: str) -> None:
    site.fill()
    (site.job / "train.sh").write_bytes(content)
    assert fact in refused(site, "optimize", "job/train.sh")


def test_another_language_is_named(site: Site) -> None:
    site.fill(train_sh=("#!/usr/bin/env bash", "#!/usr/bin/perl"))
    assert "this is a perl script" in refused(site, "optimize", "job/train.sh")


def test_a_fixed_path_outside_stops_before_the_first_run(site: Site) -> None:
    site.fill(train_py=('f"{args.out}/model.pt"', '"/scratch/model.pt"'))
    told = refused(site, "optimize", "job/train.sh")
    assert "train.py:" in told
    assert "/scratch/model.pt" in told
    assert "\n  fix: " in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    {
        "typo": (
            "  optimizer_steps: 12",
            "  optimizer_step: 12",
            "`workload.optimizer_step` is not a key",
        ),
        "typo at the top": ("\nknobs:", "\nknob:", "`knob` is not a key"),
        "value": ("  optimizer_steps: 12", "  optimizer_steps: many", "but must be a whole number"),
        "too small": (
            "  optimizer_steps: 12",
            "  optimizer_steps: 1",
            "is 1, but must be at least 5",
        ),
        "not yaml": ("schema: ", "schema ", "this is not YAML"),
        "stack": ("stack: native-ddp", "stack: megatrn", "`stack` is 'megatrn'"),
        "model": ("backend: none", "backend: vllm", "cannot honour `llm.backend: vllm`"),
        "nodes": ("  nodes: 1", "  nodes: 2", "cannot honour `launch.nodes` above 1"),
        "editable": ("- train.py", "- missing.py", "editable file 'missing.py' does not exist"),
        "script": ("script: train.sh", "script: trian.sh", "there is no such file in"),
        "family": ("family: micro_batch", "family: micro_bach", "which is no knob family"),
        "reference": ("reference: 1", "reference: 2", "train.sh:4 passes `--micro-batch-size` 1"),
        "allow": ("allow: []", "allow: [tf23]", "`allow` names 'tf23', which nothing here asks"),
        "sink": ("flag:--out: fresh", "flag:--output: fresh", "neither train.sh passes `--output`"),
        "program": ("command: bash train.sh", "command: python trian.py", "'trian.py' does not"),
        "frozen": (
            "frozen: {}",
            f"frozen: {{train.sh: sha256:{64 * '0'}}}",
            "frozen file 'train.sh' has another SHA-256",
        ),
    }.values(),
    ids=lambda value: value.strip() if isinstance(value, str) else value,
)
def test_a_mistake_in_the_contract_is_told_with_its_line(
    drafted: Site, old: str, new: str, message: str
) -> None:
    line = edit(drafted, old, new)
    told = refused(drafted, "optimize", "job/train.sh", "--yes")
    near = range(line, line + 3)
    assert any(told.startswith(f"infrarsi: job/infrarsi.yaml:{n}: ") for n in near), told
    assert message in told
    assert "\n  fix: " in told


@pytest.mark.parametrize(
    ("old", "new", "fix"),
    [
        ("script: train.sh", "script: trian.sh", "did you mean 'train.sh'?"),
        ("family: micro_batch", "family: micro_bach", "did you mean `micro_batch`?"),
        ("allow: []", "allow: [tf23]", "did you mean `tf32`?"),
        (
            "loss_tolerance: 0.03",
            "loss_tolerance: 0.03\n  precision: [bf61]",
            "did you mean `bf16`?",
        ),
        ("flag:--out: fresh", "flag:--output: fresh", "did you mean `flag:--out`?"),
        ("patches: all", "patches: [sdpa_atention]", "did you mean `sdpa_attention`?"),
    ],
    ids=str,
)
def test_a_name_that_nothing_knows_has_its_nearest(
    drafted: Site, old: str, new: str, fix: str
) -> None:
    edit(drafted, old, new)
    with pytest.raises(UserError, match=r"\w") as caught:
        insist_on_known(load(drafted.job / "infrarsi.yaml"))
    assert caught.value.fix == fix


def test_flags_of_knobs_that_the_program_refuses_are_named_together(drafted: Site) -> None:
    path = drafted.job / "infrarsi.yaml"
    text = path.read_text()
    knobs = (
        "  - {name: w, family: dataloader_workers, at: flag:--worker, values: [0, 1], "
        "reference: 0}\n"
    )
    path.write_text(text.replace("knobs:\n", f"knobs:\n{knobs}").replace("--out:", "--ouput:"))
    with pytest.raises(UserError, match=r"neither train\.sh passes `--worker` nor does train\.py "):
        insist_on_known(load(path))
    with pytest.raises(UserError, match="`flag:--ouput`: neither"):
        insist_on_known(load(path))


def test_a_typo_names_the_nearest_key(drafted: Site) -> None:
    edit(drafted, "screens: 16", "scrins: 16")
    told = refused(drafted, "run", "job")
    assert "\n  fix: rename `scrins` to `screens`" in told


def test_what_only_the_command_line_asks_for_is_blamed_on_it(drafted: Site) -> None:
    told = refused(drafted, "run", "job", "--llm", "claude:opus")
    assert told.startswith("infrarsi: command line, `--llm`: this version cannot honour")


def test_a_contract_of_another_script_is_not_used(drafted: Site) -> None:
    shutil.copy(drafted.job / "train.sh", drafted.job / "other.sh")
    told = refused(drafted, "optimize", "job/other.sh")
    assert "job/infrarsi.yaml: it is the contract of `train.sh`, not of job/other.sh" in told


def test_a_contract_of_a_folder_above_counts_only_within_a_repository(site: Site) -> None:
    site.fill()
    (site.folder / "infrarsi.yaml").write_text("schema: nonsense\n")
    assert site.infrarsi("init", "job/train.sh").code == 0
    (site.job / "infrarsi.yaml").unlink()
    (site.folder / ".git").mkdir()
    told = refused(site, "optimize", "job/train.sh")
    assert told.startswith("infrarsi: infrarsi.yaml:1: ")


def test_init_does_not_draft_twice(drafted: Site) -> None:
    before = (drafted.job / "infrarsi.yaml").read_bytes()
    told = refused(drafted, "init", "job/train.sh")
    assert "`--force`" in told
    assert (drafted.job / "infrarsi.yaml").read_bytes() == before


def bound_by_permissions(command: list[str], cwd: Path) -> Done:
    """Run a command without root's power to write where it may not."""
    prctl, drop, dac_override = ctypes.CDLL(None).prctl, 24, 1
    ran = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        preexec_fn=lambda: prctl(drop, dac_override, 0, 0, 0),
    )
    return Done(ran.returncode, ran.stdout, ran.stderr)


def test_a_folder_that_cannot_be_written_to_is_named(site: Site) -> None:
    job = site.fill()
    job.chmod(0o555)
    done = bound_by_permissions([str(INFRARSI), "optimize", "train.sh", "--yes"], job)
    assert done.code == 2
    assert "infrarsi.yaml: it cannot be written: Permission denied" in done.message


def test_a_place_for_runs_that_cannot_be_written_to_is_named(drafted: Site) -> None:
    drafted.job.chmod(0o555)
    done = bound_by_permissions([str(INFRARSI), "run"], drafted.job)
    assert done.code == 2
    assert ".infrarsi/runs: no run directory can be made: Permission denied" in done.message
    assert "`--out`" in done.message
