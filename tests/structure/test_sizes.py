"""The hard limits of the house style, with an explicit list of exceptions that only shrinks."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES, FUNCTION_LINES = 500, 70
LONG_MODULES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
SOURCES = sorted(
    path
    for package in ("infrarsi", "searchers", "launchers", "packs")
    for path in (ROOT / package).rglob("*.py")
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_keep_to_the_limits(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    text = path.read_text(encoding="utf-8")
    assert (text.count("\n") > MODULE_LINES) == (name in LONG_MODULES)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert (lines > FUNCTION_LINES) == (f"{name}:{node.name}" in LONG_FUNCTIONS), node.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_are_ascii_and_every_module_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.isascii()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_every_room_has_a_readme() -> None:
    rooms = [p for p in (ROOT / "infrarsi").iterdir() if (p / "__init__.py").exists()]
    rooms += [ROOT / "searchers", ROOT / "launchers", ROOT / "examples"]
    assert [str(room) for room in rooms if not (room / "README.md").exists()] == []
