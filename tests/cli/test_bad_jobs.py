"""Jobs that do not train as they are: found in the first reference run, told in one message."""

import re

import pytest
from spawned import Done, Site

pytestmark = pytest.mark.ray
FAST = ("--yes", "--no-doctor", "--screens", "1")
TRAIN = "python train.py --micro-batch-size 1"


def doctor(site: Site, *arguments: str) -> Done:
    """Draft and measure; the user's files stay as they are."""
    before = site.tree()
    if not (site.job / "infrarsi.yaml").exists():
        done = site.infrarsi("init", "job/train.sh")
        assert done.code == 0, done.err
    done = site.infrarsi("doctor", "job", *arguments)
    assert site.tree() == before
    return done


def test_a_traceback_is_shown_with_its_place(site: Site) -> None:
    site.fill(train_py=("torch.manual_seed(0)", "raise RuntimeError('no such corpus')"))
    before = site.tree()
    done = site.infrarsi("optimize", "job/train.sh", *FAST)
    assert site.tree() == before
    assert done.code == 2
    first, *rest = done.err.splitlines()
    assert first.startswith("infrarsi: `bash train.sh`: the job as it is failed: ")
    assert "no such corpus" in first
    assert "(train.py:19)" in first
    assert rest[-1] == "  fix: make the command run by itself, then start again"
    assert "infrarsi: " not in "\n".join(rest)
    assert f'File "{site.job}/train.py", line 19' in done.err, "not that of a copy that is gone"
    report = (site.runs()[0] / "REPORT.md").read_text()
    for text in (report, site.infrarsi("report").out):
        assert "**Not finished: the job as it is could not be measured.**" in text
        assert "`bash train.sh`: the job as it is failed: " in text
        assert f'File "{site.job}/train.py", line 19' in text
        assert "stdout.log" in text
        assert "Fix: make the command run by itself, then start again." in text


@pytest.mark.slow
def test_a_command_that_ends_at_once(site: Site) -> None:
    site.fill(train_py=("torch.manual_seed(0)", "raise SystemExit(7)"))
    done = doctor(site)
    assert done.code == 2
    assert "the command ended with exit code 7, silently" in done.message


@pytest.mark.slow
def test_a_command_that_does_not_train(site: Site) -> None:
    site.fill(train_py=("torch.manual_seed(0)", "raise SystemExit"))
    done = doctor(site)
    assert done.code == 2
    assert "no process made an optimizer step that the witness could see" in done.message


@pytest.mark.slow
def test_a_job_without_a_step_within_its_time(site: Site) -> None:
    site.fill(train_py=("torch.manual_seed(0)", "time.sleep(1000)"))
    assert site.infrarsi("init", "job/train.sh").code == 0
    contract = site.job / "infrarsi.yaml"
    text = contract.read_text()
    contract.write_text(text.replace("launch:\n", "launch:\n  start_timeout_s: 2\n"))
    done = doctor(site)
    assert done.code == 2
    assert "no optimizer step within 2 s (`launch.start_timeout_s`)" in done.message
    assert "\n  fix: if the job trains, raise `launch.start_timeout_s`" in done.message


@pytest.mark.slow
def test_a_job_that_prints_nothing_is_no_fault(site: Site) -> None:
    site.fill(train_py=('    print(f"step {step} loss {loss.item():.4f}", flush=True)\n', ""))
    done = doctor(site)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^  completes +covered$", done.out, re.MULTILINE)


@pytest.mark.slow
def test_a_job_that_writes_outside_its_copy(site: Site) -> None:
    elsewhere = site.folder / "elsewhere"
    elsewhere.mkdir()
    site.fill(train_py=('f"{args.out}/model.pt"', "open('place.txt').read() + '/x.pt'"))
    (site.job / "place.txt").write_text(str(elsewhere))
    done = doctor(site)
    assert done.code == 2
    assert f"the job wrote outside its own copy: {elsewhere}/x.pt" in done.message
    assert "\n  fix: " in done.message


@pytest.mark.slow
def test_a_job_that_needs_a_secret_is_told_how_to_get_it(site: Site) -> None:
    site.extra["HF_TOKEN"] = "hf_0123456789abcdef"
    site.fill(
        train_py=("torch.manual_seed(0)", "__import__('os').environ['HF_TOKEN']; print('got it')")
    )
    done = doctor(site)
    assert done.code == 2
    assert "`HF_TOKEN` was withheld because its name looks secret" in done.err
    contract = site.job / "infrarsi.yaml"
    text = contract.read_text()
    contract.write_text(text.replace("launch:\n", "launch:\n  env_pass: [HF_TOKEN]\n"))
    assert doctor(site).code == 0
