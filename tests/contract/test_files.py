"""infrarsi.yaml on disk: mistakes with lines, round trips, comments, the kept copy."""

from pathlib import Path

import pytest

from infrarsi.contract import Project
from infrarsi.contract.files import amend, dump, load, parse, write
from infrarsi.errors import UserError

PATH = Path("infrarsi.yaml")
HEAD = 'schema: infrarsi-project-v1\nname: job\nlaunch: {command: "bash train.sh"}\n'
FULL = """schema: infrarsi-project-v1
name: qwen-pretrain
stack: native-ddp
launch: {command: "bash train.sh", nodes: 1, gpus_per_node: 8, script: train.sh}
workload: {planned_steps: 100000, optimizer_steps: 40, ends_by: witness, samples_per_update: 16}
knobs:
  - {name: mbs, family: micro_batch, at: "flag:--mbs", values: [1, 2, 4, 8], reference: 1}
  - name: recompute
    family: activation_recompute
    reference: full
    values:
      none: {remove: ["flag:--recompute-granularity", "flag:--recompute-method"]}
      full: {set: {"flag:--recompute-granularity": full, "flag:--recompute-method": uniform}}
  - name: compile
    family: compile
    reference: off
    values: {off: {remove: ["flag:--compile"]}, on: {set: {"flag:--compile": true}}}
constraints: ["mbs <= 4", "micro_batch * data_parallel <= 64"]
sinks: {"flag:--save": fresh, "env:WANDB_MODE": offline, "path:logs": fresh}
allow: [tf32]
editable: [model.py, train.py]
frozen: {data.py: "sha256:%s"}
invariants: {loss_tolerance: 0.03, memory_cap_gib: 76, precision: [bf16]}
llm: {backend: vllm, model: m, base_url: "http://h:1/v1", extra_body: {a: {b: false}}}
search: {seed: 3, patches: [sdpa_attention], budget: {screens: 16, target_speedup: 1.8}}
experience: auto
requirements: {text: ["keep micro-batch size at most 4"], on_unsupported: stop}
debate: {enabled: false, second: null, verifier: null, verify_rounds: 2}
verify: {confidence: 0.9, max_pairs: auto, user_tests: ["pytest -q"]}
cluster: {address: auto, parallel_trials: 2, launcher: auto}
policy: {apply: never}
""" % ("0" * 64)


def mistakes(text: str) -> list[str]:
    with pytest.raises(UserError, match=r"\w") as caught:
        parse(text, PATH)
    first = f"{caught.value.where}: {caught.value.what}"
    return first.splitlines()


def test_the_whole_schema_survives_writing_and_reading() -> None:
    project = parse(FULL, PATH).project
    assert parse(dump(project), PATH).project == project


def test_a_file_with_only_the_three_required_keys_loads_and_survives() -> None:
    project = parse(HEAD, PATH).project
    assert project.launch.command == "bash train.sh"
    assert parse(dump(project), PATH).project == project


def test_sections_are_written_in_the_order_of_the_schema() -> None:
    text = dump(parse(FULL, PATH).project)
    keys = [line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha()]
    assert keys == [
        f.alias or name for name, f in Project.model_fields.items() if (f.alias or name) in keys
    ]
    assert keys[:4] == ["schema", "name", "stack", "launch"]


def test_comments_stand_beside_the_values_they_explain() -> None:
    project = parse(FULL, PATH).project
    text = dump(
        project,
        {
            ("workload", "planned_steps"): "the job's own length (train.sh:3)",
            ("knobs", "mbs"): "train.sh:4 passes --mbs 1",
            ("editable", "train.py"): "the entry",
            ("frozen", "data.py"): "line 3\n defines Rows",
        },
    )
    assert "  planned_steps: 100000  # the job's own length (train.sh:3)\n" in text
    assert "  # train.sh:4 passes --mbs 1\n  - {name: mbs" in text
    assert "  - train.py  # the entry\n" in text
    assert "# line 3 defines Rows\n" in text
    assert parse(text, PATH).project == project


def test_words_that_look_like_other_types_stay_words() -> None:
    data = parse(FULL, PATH).project.model_dump(by_alias=True)
    data["name"] = "true"
    data["knobs"][0] = {
        "name": "on",
        "family": "x",
        "at": "flag:--x",
        "values": ["1", 1, "null", "1e3", "true", True, 0.5, "a: b # c"],
        "reference": "1",
    }
    data["constraints"] = []
    project = Project.model_validate(data)
    again = parse(dump(project), PATH).project
    assert again == project
    assert [type(v) for v in again.knobs[0].values] == [type(v) for v in project.knobs[0].values]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD + "stak: native-ddp\n", 4, "`stak` is not a key of this file"),
        (HEAD.replace("command", "comand"), 3, "`launch.comand` is not a key"),
        (HEAD + "workload:\n  optimizer_steps: 3\n", 5, "is 3, but must be at least 5"),
        (HEAD + "workload:\n  optimizer_steps: many\n", 5, "'many', but must be a whole number"),
        (HEAD + "workload: {ends_by: jobb}\n", 4, "'jobb', but must be 'witness' or 'job'"),
        (HEAD + "stack: jax\n", 4, "`stack` is 'jax', but must be 'megatron'"),
        (HEAD + "search:\n  patches: 3\n", 5, "`search.patches` is 3, but must be"),
        (HEAD + "launch: {command: again}\n", 4, "`launch` is written twice, first in line 3"),
        (HEAD + "sinks:\n  {foo: fresh}\n", 5, "a place must be one of"),
        (HEAD + "sinks:\n  {'path:../x': fresh}\n", 5, "inside the project, but got '../x'"),
        (HEAD + "sinks:\n  {'path:x': offline}\n", 5, "`path:` sink must be `fresh`"),
        (HEAD + "editable: [a.py,\n  /abs.py]\n", 5, "inside the project, but got '/abs.py'"),
        (HEAD + "editable: [a.py,\n  ../up.py]\n", 5, "inside the project, but got '../up.py'"),
        (HEAD + "frozen:\n  ~/a.py: abc\n", 5, "inside the project, but got '~/a.py'"),
        (HEAD + "frozen:\n  a.py: abc\n", 5, "a digest must be `sha256:`"),
        (HEAD + "editable: [a.py]\nfrozen: {a.py: 'sha256:%s'}\n" % ("0" * 64), 5, "both editable"),
        (HEAD + "constraints:\n  - a << 2\n", 5, "'<' is not expected"),
        (HEAD + "knobs: []\nconstraints:\n  - nope <= 2\n", 6, "names 'nope'"),
        (HEAD + "knobs:\n  - {name: a, family: f, values: [1], reference: 1}\n", 5, "needs `at`"),
        (
            HEAD
            + "knobs:\n  - {name: a, family: f, at: 'env:A',\n"
            + "     values: [1, 2],\n     reference: 3}\n",
            7,
            "`reference` must be one of the values [1, 2], but got 3",
        ),
        (
            HEAD + "knobs:\n  - {name: a, family: f, at: 'flg:A', values: [1, 2], reference: 1}\n",
            5,
            "but got 'flg:A'",
        ),
        (
            HEAD
            + "knobs:\n  - name: a\n    family: f\n    reference: x\n    values:\n"
            + "      x: {remove: [flag:--x]}\n      y:\n        set: {nowhere: 1}\n",
            11,
            "but got 'nowhere'",
        ),
        (
            HEAD
            + "knobs:\n  - {name: a, family: f, at: 'env:A', values: [1], reference: 1}\n"
            + "  - {name: a, family: f, at: 'env:B', values: [1], reference: 1}\n",
            6,
            "two knobs are named 'a'",
        ),
        ("schema: infrarsi-project-v1\nlaunch: {command: x}\n", 1, "`name` is missing"),
        ("name: a\nlaunch:\n", 2, "`launch` is empty, but must be a mapping"),
        (
            "schema: infrarsi-project-v2\nname: a\nlaunch: {command: x}\n",
            1,
            "'infrarsi-project-v1'",
        ),
        ("- a\n- b\n", 1, "must be a mapping of keys, but it is a list"),
        ("", 1, "but it is empty"),
        ("a: 1\nb: [1\n\n\n", 2, "this is not YAML"),
        ("a: 1\n\tb: 2\n", 2, "this is not YAML"),
        (HEAD + "---\nname: two\n", 4, "this is not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_its_value(text: str, line: int, words: str) -> None:
    first = mistakes(text)[0]
    assert first.startswith(f"infrarsi.yaml:{line}: ")
    assert words in "\n".join(mistakes(text))


def test_all_mistakes_are_reported_in_the_order_of_the_file() -> None:
    lines = mistakes(
        HEAD.replace("name: job", "name: 3")
        + "workload: {optimizer_steps: 1}\nsinks: {foo: fresh}\ncluster: {adress: x}\n"
    )
    assert [line.split(":")[1] for line in lines] == ["2", "4", "5", "6"]


def test_the_nearest_key_is_proposed() -> None:
    with pytest.raises(UserError, match="not a key") as caught:
        parse(HEAD + "search: {bugdet: {screens: 3}}\n", PATH)
    assert caught.value.fix == "rename `bugdet` to `budget`"


def test_a_key_in_the_wrong_section_is_sent_home() -> None:
    with pytest.raises(UserError, match="not a key") as caught:
        parse(HEAD + "gpus_per_node: 8\n", PATH)
    assert caught.value.fix == "move it under `launch`"


def test_a_missing_file_says_how_to_draft_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no infrarsi\.yaml") as caught:
        load(tmp_path / "infrarsi.yaml")
    assert "infrarsi init" in caught.value.fix


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "infrarsi.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(UserError, match="byte 6 is not UTF-8"):
        load(path)


def test_control_characters_are_refused_not_raised(tmp_path: Path) -> None:
    path = tmp_path / "infrarsi.yaml"
    path.write_text("name: a\x00b\n")
    with pytest.raises(UserError, match="this is not YAML"):
        load(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder, not a file"):
        load(tmp_path)


def test_a_list_that_holds_itself_ends_with_a_message() -> None:
    with pytest.raises(UserError, match="editable"):
        parse(HEAD + "editable: &a [*a]\n", PATH)


def test_anchors_and_merges_may_be_used() -> None:
    text = HEAD + (
        "knobs:\n"
        "  - &first {name: a, family: f, at: 'env:A', values: [1, 2], reference: 1}\n"
        "  - {<<: *first, name: b, at: 'env:B'}\n"
    )
    assert [knob.name for knob in parse(text, PATH).project.knobs] == ["a", "b"]


def test_places_are_named_for_later_messages() -> None:
    loaded = parse(FULL, PATH)
    assert loaded.place("workload", "optimizer_steps") == "infrarsi.yaml:5"
    assert loaded.place("knobs", 1, "values", "full") == "infrarsi.yaml:13"
    assert loaded.line("policy", "nothing") == FULL.count("\n")


def test_writing_keeps_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "infrarsi.yaml"
    path.write_text("the old one\n")
    write(path, parse(HEAD, PATH).project)
    assert (tmp_path / "infrarsi.yaml.bak").read_text() == "the old one\n"
    assert load(path).project.name == "job"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["infrarsi.yaml", "infrarsi.yaml.bak"]


def test_amending_keeps_the_users_words_and_changes_only_the_value() -> None:
    text = HEAD + "# my own note\nworkload:\n  planned_steps: 7000  # until Friday\n"
    before = parse(text, PATH).project
    after = Project.model_validate(
        {
            **before.model_dump(by_alias=True),
            "workload": {"planned_steps": 9000},
            "search": {"budget": {"screens": 3}},
        }
    )
    changed = amend(text, before, after)
    assert "# my own note" in changed
    assert "planned_steps: 9000  # until Friday" in changed
    assert parse(changed, PATH).project == after
