"""What the documents say is so: links lead somewhere, options and commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {".git", ".infrarsi", ".venv", "node_modules", "my-job"} & set(path.parts)
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (path.parent / link).exists(), link


def help_of(*command: str) -> str:
    """The help text of a command, as wide as it gets."""
    return subprocess.run(
        [sys.executable, "-m", "infrarsi", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    ).stdout


OPTIONS = {
    "optimize": "branch command dry-run entry force gpu-hours interactive llm max-wallclock "
    "no-doctor no-interactive on-interrupt out ray-address screens searcher seed target-speedup "
    "tolerance trials verbose wall-hours yes experience",
    "run": "gpu-hours llm max-wallclock no-doctor on-interrupt out ray-address resume screens "
    "searcher seed target-speedup tolerance trials verbose wall-hours experience",
    "init": "command entry force",
    "doctor": "baseline experience out ray-address verbose",
    "report": "out rejudge",
    "apply": "branch out project write",
    "exp stats": "",
    "exp validate": "",
    "exp export": "out pack-id title",
    "finish": "branch dry-run out project ray-address verbose yes",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_the_list_of_options_is_the_checked_in_one(command: str) -> None:
    found = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", help_of(*command.split()))) - {"help"}
    assert sorted(found) == sorted(OPTIONS[command].split())


def test_options_named_in_the_readme_exist() -> None:
    known = {option for options in OPTIONS.values() for option in options.split()}
    known |= {"version", "help"}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"infrarsi [^`\n]*?--([a-z][a-z-]+)", text))
    assert named <= known
