"""A real `doctor` with a baseline: what is covered, what would cover the rest, what is off."""

import pytest
from spawned import Site

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_the_reference_is_held_against_the_baseline(site: Site) -> None:
    site.fill("loading")
    assert site.infrarsi("init", "job/train.sh").code == 0
    (site.folder / "known.yaml").write_text(
        "step_time_s: 100\nmemory_peak_gib: 0.5\ntolerances: {memory_peak: 1}\n"
    )
    done = site.infrarsi("doctor", "job", "--baseline", "known.yaml")
    assert done.code == 2
    assert "known.yaml:1: the job as it runs here is not the one of the baseline" in done.message
    assert "`step_time_s` is " in done.message
    assert "memory_peak_gib" not in done.message
    lines = done.out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("  step_time_s")] == ["OFF"]
    assert any(line.startswith("  memory_cap ") and line.endswith(" covered") for line in lines)
    at = next(i for i, line in enumerate(lines) if line.startswith("  user_tests "))
    assert "not covered: " in lines[at]
    assert "to cover it: name commands that test the code" in lines[at + 1]
