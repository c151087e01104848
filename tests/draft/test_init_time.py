"""What reading a large repository may cost."""

import ast
import time
from pathlib import Path

import pytest
from benchmark_module import load

ROOT = Path(__file__).parents[2]
LIMIT_CPU_S, LIMIT_MIB = 5.0, 300.0
PARSE_S = 0.2  # CPU seconds for a MB of Python where the figures of the README were taken


def _parsing() -> float:
    """CPU seconds for a MB of Python: on a busy machine a CPU second is worth less."""
    texts = [path.read_text() for path in sorted((ROOT / "infrarsi").rglob("*.py"))]
    began = time.process_time()
    for text in texts:
        ast.parse(text)
    return (time.process_time() - began) / (sum(map(len, texts)) / 1e6)


@pytest.mark.slow
def test_a_repository_of_20000_files_is_drafted_within_its_budget(tmp_path: Path) -> None:
    benchmark = load("init_time")
    script = benchmark.make(tmp_path / "repository")
    count = sum(1 for path in (tmp_path / "repository").rglob("*") if not path.is_dir())
    assert count >= benchmark.FILES
    runs = []
    for _ in range(2):
        before = _parsing()
        _, cpu_s, mib = benchmark.measure(script)
        slowness = max(1.0, (before + _parsing()) / 2 / PARSE_S)
        runs.append((cpu_s / slowness, mib))
    assert min(cpu for cpu, _ in runs) < LIMIT_CPU_S
    assert min(mib for _, mib in runs) < LIMIT_MIB
    drafted = (script.parent / "infrarsi.yaml").read_text()
    assert "lib/part19/mod0399.py" in drafted
