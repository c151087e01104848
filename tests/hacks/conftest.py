"""One workbench for all cases, and one table of what became of them."""

import textwrap

import pytest
from harness import Finding, Workbench

FINDINGS = pytest.StashKey[list[Finding]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FINDINGS] = []


@pytest.fixture(scope="session")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Where all cases of this session run; `--basetemp` says where the receipts lie."""
    return Workbench(tmp_path_factory.mktemp("hacks"))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> list[Finding]:
    """The findings of this session, for the table."""
    return request.config.stash[FINDINGS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    findings = terminalreporter.config.stash[FINDINGS]
    if not findings:
        return
    write = terminalreporter.write_line
    terminalreporter.section("cheats and honest changes")
    write(f"{'base':8}{'case':36}{'rows':10}{'run':8}{'verdict':24}reason")
    for found in sorted(findings, key=lambda f: (f.case.honest, f.case.base, f.case.name)):
        for line in _lines(found):
            write(line, red=not found.right)
    write(_total("caught", [f for f in findings if not f.case.honest]))
    write(_total("accepted", [f for f in findings if f.case.honest]))


def _lines(found: Finding) -> list[str]:
    case = found.case
    shown = found.caught_by or found.rejected_by
    verdict = ", ".join(dict.fromkeys(r.check for r in shown)) or "accepted"
    reason = shown[0].reason if shown else ""
    mark = "" if found.right else "WRONG "
    verdict = textwrap.shorten(mark + verdict, 46, placeholder="..")
    rows = ",".join(case.rows)
    return [
        f"{case.base:8}{case.name:36}{rows:10}{found.kind:8}{verdict:24}"
        + textwrap.shorten(f"{reason}", 110, placeholder="..")
    ]


def _total(word: str, findings: list[Finding]) -> str:
    right = sum(f.right for f in findings)
    return f"{word} {right}/{len(findings)}"
