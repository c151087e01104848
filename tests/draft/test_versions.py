"""The version of a library is that of the environment that the job runs in, or the one it pins."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from infrarsi.draft.versions import Versions


def installed(package: str) -> str:
    if package == "torch":
        return "2.5.1+cu124"
    raise PackageNotFoundError(package)


def test_what_is_installed_counts_before_a_pin(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1.0\n")
    found = Versions(tmp_path, "torchrun train.py", installed).of("torch")
    assert found is not None
    assert (found.number, found.told) == ("2.5.1+cu124", "torch as it is installed here")


@pytest.mark.parametrize(
    "line", ["conda activate own", "source env/bin/activate", "srun --container-image=x bash"]
)
def test_a_script_that_runs_elsewhere_has_the_version_that_it_pins(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "requirements.txt").write_text("# torch==9\nmegatron_core[dev] == 0.12.1\n")
    versions = Versions(tmp_path, f"{line}\ntorchrun train.py\n", installed)
    assert versions.of("torch") is None
    found = versions.of("megatron-core")
    assert found is not None
    assert (found.number, found.told) == (
        "0.12.1",
        "requirements.txt:2 pins megatron-core",
    )


def test_a_range_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('dependencies = ["trl>=0.9", "own-trl==1.0"]\n')
    assert Versions(tmp_path, "", installed).of("trl") is None


def test_a_file_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfe\x00trl==1.0")
    assert Versions(tmp_path, "", installed).of("trl") is None
