"""What is told of a file by its text is what its tree says, or nothing is told."""

import ast
from pathlib import Path

import pytest

from infrarsi.draft.outline import definitions_of, imports_of, look
from infrarsi.draft.sources import PythonFile, read

ROOT = Path(__file__).parents[2]

FILES = {
    "plain": """import a
import b.c as d, e
from f import g
from . import h
from ..i.j import k as l
""",
    "parentheses": "from a import (  # the first\n    b,\n    c as d,  # and\n)\nfrom e import *\n",
    "inside": "def f():\n    import a\n    if x:\n        from b import c\nimport d\n",
    "no blank": "from.a import b\nfrom ... import c\n",
    "docstring": """'''
import a
class B:
'''
import c


def d():
    r'''
from e import f
    '''
""",
    "raw": "x = r'''\n\\'''\nimport a\n'''\ny = '\\\nimport b'\n",
    "comment": "# import a\nimport b  # from c import d\nx = 'import e'  # it's\nimport f\n",
    "words of a text": "'''What is; from that\nimport this: import it.'''\nimport a\n",
    "bases": """class A: pass
class B(n.Module, Generic[T], metaclass=M):
    pass
class C(
    D,
    make(E, f=1),
): x = 1
""",
    "functions": """@x
async def a(): pass
async  def b():
    def c(): pass
def d(): pass
""",
    "raise": "def f():\n    raise A \\\n        from e\n",
}
ODD = {
    "another statement": "import a; import b\n",
    "one line": "if x: import a\n",
    "several lines": "import a, \\\n    b\n",
    "a text of one line": "x = 'so; import it'\n",
    "by a call": "m = importlib.import_module('a.b')\n",
}


def same(text: str) -> None:
    tree, outline = ast.parse(text), look(text)
    if outline.imports is not None:
        assert sorted(map(repr, outline.imports)) == sorted(map(repr, imports_of(tree)))
    if outline.definitions is not None:
        told = [(one.name, one.bases) for one in outline.definitions]
        assert told == [(one.name, one.bases) for one in definitions_of(tree)]


@pytest.mark.parametrize("name", FILES)
def test_the_outline_is_that_of_the_tree(name: str) -> None:
    outline = look(FILES[name])
    assert outline.imports is not None
    assert outline.definitions is not None
    same(FILES[name])


@pytest.mark.parametrize("name", ODD)
def test_what_the_text_does_not_show_is_left_to_the_tree(name: str) -> None:
    assert look(ODD[name]).imports is None


def test_the_outlines_of_this_project_are_those_of_its_trees() -> None:
    files = sorted((ROOT / "infrarsi").rglob("*.py"))
    assert len(files) > 200
    told = 0
    for path in files[::3]:
        text = path.read_text(encoding="utf-8")
        same(text)
        told += look(text).imports is not None
    assert told > 0.9 * len(files[::3])


def test_imports_of_the_outermost_level_come_first() -> None:
    found = look("def f():\n    import a\nimport b\n").imports
    assert [one.name for one in found or ()] == ["b", "a"]


def test_a_file_is_parsed_only_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    real = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text, *a, **k: parsed.append(text) or real(text))
    (tmp_path / "train.py").write_text("import m\nimport n\n")
    (tmp_path / "m.py").write_text("def f():\n    return open('x')\n")
    (tmp_path / "n.py").write_text("import o\nx = 1\n")
    (tmp_path / "o.py").write_text("def broken(:\n")
    sources = read(tmp_path, "train.py", ["."])
    assert [file.path for file in sources.files] == ["train.py", "m.py", "n.py", "o.py"]
    assert len(list(sources.calls("open"))) == 1
    assert len(list(sources.calls("open"))) == 1
    assert sources.unreadable == ("o.py",)
    texts = [text for text in parsed if len(text) > 1]
    assert texts == [(tmp_path / name).read_text() for name in ("train.py", "m.py")]


def test_the_nodes_of_a_file_are_those_of_its_tree() -> None:
    text = (ROOT / "infrarsi" / "draft" / "target.py").read_text(encoding="utf-8")
    file = PythonFile("target.py", text)
    left_out = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    wanted = [node for node in ast.walk(file.tree) if not isinstance(node, left_out)]
    assert list(file.nodes) == wanted
    assert all(
        file.parents[child] is n
        for n in wanted
        for child in ast.iter_child_nodes(n)
        if not isinstance(child, left_out)
    )
