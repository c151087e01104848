"""What a program can be told, read from its parser."""

import pytest

from infrarsi.draft.arguments import UNKNOWN, Definition, definitions
from infrarsi.draft.sources import PythonFile, Sources


def read(text: str, **environment: str | None) -> dict[str, Definition]:
    file = PythonFile("train.py", text)
    return {d.names[0]: d for d in definitions(Sources((file,)), environment)}


@pytest.mark.parametrize(
    ("call", "default", "kind"),
    [
        ('p.add_argument("--a", type=int, default=4)', 4, "int"),
        ('p.add_argument("--a", type=float, default=1e-3)', 1e-3, "float"),
        ('p.add_argument("--a", default="x")', "x", "str"),
        ('p.add_argument("--a", type=Path, default=None)', None, "str"),
        ('p.add_argument("--a", type=int, default=-1)', -1, "int"),
        ('p.add_argument("--a", type=int, default=N)', 8, "int"),
        ('p.add_argument("--a", type=int, default=2 * N)', 16, "int"),
        ('p.add_argument("--a", type=int, default=2**3)', 8, "int"),
        ('p.add_argument("--a", type=str2bool, default=True)', True, "bool"),
        ('p.add_argument("--a", type=int, default=compute())', UNKNOWN, "int"),
        ('p.add_argument("--a", default=os.environ.get("A", "d"))', "d", "str"),
        ('p.add_argument("--a", default=os.environ.get("SET", "d"))', "value", "str"),
        ('p.add_argument("--a", default=os.environ.get("HIDDEN", "d"))', UNKNOWN, "str"),
        ('p.add_argument("--a", type=int, default=int(os.getenv("A", "3")))', 3, "int"),
        ('p.add_argument("--a", action="store_true")', False, "str"),
        ('p.add_argument("--a", action="store_false")', True, "str"),
    ],
)
def test_defaults_are_read_or_unknown(call: str, default: object, kind: str) -> None:
    found = read(f"N = 8\n{call}\n", SET="value", HIDDEN=None)["--a"]
    assert found.default == default
    assert found.kind == kind
    assert found.place == "train.py:2"


def test_names_dest_choices_and_help() -> None:
    text = 'p.add_argument("-b", "--batch-size", dest="bs", choices=[1, 2], help="rows " "each")'
    found = read(text)["-b"]
    assert found.names == ("-b", "--batch-size")
    assert (found.flag, found.dest, found.choices) == ("--batch-size", "bs", (1, 2))
    assert found.help == "rows each"


def test_the_dest_of_a_flag_is_its_long_name_with_underscores() -> None:
    assert read('p.add_argument("-x", "--grad-accum")')["-x"].dest == "grad_accum"


def test_arguments_of_a_loop_and_of_a_function_are_found() -> None:
    text = (
        "def build(p):\n    for name, value in [('--a', 1), ('--b', 2)]:\n"
        "        p.add_argument(name, type=int, default=value)\n    return p\n"
    )
    assert {name: d.default for name, d in read(text).items()} == {"--a": 1, "--b": 2}


def test_later_defaults_win() -> None:
    text = 'p.add_argument("--a", type=int, default=1)\np.set_defaults(a=7)\n'
    assert read(text)["--a"].default == 7


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('p.add_argument("--a", action=argparse.BooleanOptionalAction)', "optional"),
        ('@click.option("--a/--no-a", default=True)\ndef f(): ...', "optional"),
        ('@click.option("--a", is_flag=True)\ndef f(): ...', "store_true"),
        ('@click.option("--a", type=int, default=3)\ndef f(): ...', "store"),
        ('p.add_argument("--a", action="append")', "append"),
    ],
)
def test_actions(text: str, action: str) -> None:
    assert read(text)["--a"].action == action


def test_positionals_are_left_out() -> None:
    assert read('p.add_argument("config")\np.add_argument(name)\np.add_argument()\n') == {}


def test_reads_of_the_environment_are_settings_too() -> None:
    text = "import os\nW = int(os.environ.get('WORKERS', '2'))\nO = os.environ['OUT']\n"
    found = read(text)
    assert (found["WORKERS"].default, found["WORKERS"].kind) == (2, "int")
    assert found["WORKERS"].is_env
    assert found["OUT"].default is UNKNOWN


def test_writing_the_environment_is_no_setting() -> None:
    assert read("import os\nos.environ['OUT'] = '1'\n") == {}
