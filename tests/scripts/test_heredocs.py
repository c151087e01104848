"""Files that a script writes by heredocs: read as bash writes them, and changed in place."""

import pytest
from real_shell import RealShell, spread
from real_shell import read as read_words

from infrarsi.errors import UserError
from infrarsi.scripts import Document, Script

RUN = "torchrun --nproc_per_node 2 train.py --config cfg.yaml\n"
WAYS = {  # of writing one file; all of it can be known
    "expanded": "cat > cfg.yaml <<EOF\n# job\nlr: $LR # rate\n"
    'name: "a $LR" \\$x \\`y\\` \\\\ \\"\nEOF\n',
    "quoted": "cat <<'EOF' > cfg.yaml\nlr: $LR\nname: \"a\" \\$x `y`\nEOF\n",
    "escaped delimiter": "cat <<\\EOF > cfg.yaml\nlr: $LR\n\nEOF\n",
    "tee": "tee cfg.yaml <<EOF > /dev/null\nlr: ${LR}\nsum: 3\nEOF\n",
    "piped into tee": "cat <<EOF | tee cfg.yaml > /dev/null\n"
    "\nlr: ${LR:-7}\nb: ${NOT_SET_AT_ALL:-7}\nEOF\n",
    "tabs": "cat > cfg.yaml <<-EOF\n\t# a\tb\n\t\tlr: $LR\n\tEOF\n",
    "quoted with tabs": "cat > cfg.yaml <<-'EOF'\n\tlr: $LR\n\t\t- a\n\tEOF\n",
    "empty": "cat > cfg.yaml <<EOF\nEOF\n",
    "two variables": "cat > cfg.yaml <<EOF\n$LR $LR\n$LR\n\n${LR}x\nEOF\n",
    "continued line": "cat > cfg.yaml <<EOF\na: \\\n  b\nEOF\n",
    "several parts": "cat > cfg.yaml <<EOF\nlr: $LR\nEOF\ncat >> cfg.yaml <<'EOF'\nx: $y\nEOF\n",
    "another folder": "mkdir -p d\n(cd d; cat > ../cfg.yaml <<EOF\nlr: $LR\nEOF\n)\n",
    "a function": 'put() { cat > "$1" <<EOF\nlr: $2\nEOF\n}\nput cfg.yaml "$LR"\n',
    "behind &&": "cat > cfg.yaml <<EOF && echo done\nlr: $LR\nEOF\n",
    "umlauts": "cat > cfg.yaml <<EOF\n# größer\nlr: $LR\nEOF\n",
    "arithmetic": "N=3\ncat > cfg.yaml <<EOF\na: $((N * 2))\n"
    '  b: $(( (1+2) * N ))\n"c": "${X:-"q"}"\nEOF\n',
    "array": "A=(1 2)\ncat > cfg.yaml <<EOF\na: ${A[1]}\nall: [${A[*]}]\nEOF\n",
}


def script(text: str) -> Script:
    return Script.parse(f"#!/bin/bash\nLR=1e-3\n{text}{RUN}", "train.sh")


def only(found: Script) -> Document:
    (document,) = found.documents()
    return document


def edited(read: Script, text: str) -> Script | None:
    """The script that writes another text; None where that is refused with place and fix."""
    try:
        return read.with_document("cfg.yaml", text)
    except UserError as error:
        where, fix = error.where, error.fix
    assert (where or "").startswith("train.sh:")
    assert fix
    return None


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS.keys())
def test_a_file_is_read_as_bash_writes_it(text: str, shell: RealShell) -> None:
    read = script(text)
    document = only(read)
    assert (document.path, document.why, document.unknown) == ("cfg.yaml", "", {})
    shell.run(read.text)
    assert document.text == (shell.project / "cfg.yaml").read_text()


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS.keys())
def test_a_changed_text_is_what_bash_writes_or_an_error(text: str, shell: RealShell) -> None:
    read = script(text)
    before = shell.run(read.text)
    lines = only(read).text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        for new in (line.replace("1e-3", "0.5"), f"{line.rstrip()}8\n$new: `a` \\\n"):
            wanted = "".join([*lines[:number], new, *lines[number + 1 :]])
            changed = edited(read, wanted)
            if changed is None:
                continue
            after = shell.run(changed.text)
            assert (shell.project / "cfg.yaml").read_text() == wanted
            assert [call.arguments for call in after] == [call.arguments for call in before]


def test_only_the_bytes_of_the_value_change() -> None:
    read = script("cat > cfg.yaml <<EOF\n# job\nbatch: 4   # rows\nlr: $LR\nEOF\n# end\n")
    changed = read.with_document("cfg.yaml", only(read).text.replace("4 ", "16 "))
    assert changed.text == read.text.replace("batch: 4 ", "batch: 16 ")


def test_a_value_of_a_variable_is_changed_where_it_is_assigned() -> None:
    read = script("cat > cfg.yaml <<EOF\nlr: $LR # $x\nEOF\necho $LR\n")
    changed = read.with_document("cfg.yaml", only(read).text.replace("1e-3", "0.5"))
    assert changed.text == read.text.replace("LR=1e-3", "LR=0.5")


ELSEWHERE = ["${LR:-1e-3}", "$((1 + 2))", "${A}${LR:-2}", "$(date)"]


@pytest.mark.parametrize("value", ELSEWHERE)
@pytest.mark.parametrize("direct", [True, False], ids=["in place", "assigned"])
def test_a_default_gives_way_to_the_value(value: str, direct: bool, shell: RealShell) -> None:
    first, inside = ("", value) if direct else (f"B={value}\n", "$B")
    text = f"A=7\n{first}cat > cfg.yaml <<EOF\nlr: {inside} # $A\nx: ${{A}}\nEOF\n{RUN}"
    read = Script.parse(text, "train.sh")
    wanted = "lr: 0.5 # 7\nx: 7\n"
    changed = edited(read, wanted)
    if changed is None:
        assert value in ("${A}${LR:-2}", "$(date)")
        return
    shell.run(changed.text)
    assert (shell.project / "cfg.yaml").read_text() == wanted


SHARED = {
    "the training command": ("", " --lr $LR", "`LR` is used in line 7"),
    "a condition": ("if [ $LR = 1e-3 ]; then echo a; fi\n", "", "`LR` is used in line 7"),
    "arithmetic": ("N=$((LR * 2))\n", "", "`LR` is used in line 7"),
    "another file": ("cat > b.yaml <<EOF\n$LR\nEOF\n", "", "`LR` is used in line 8"),
    "the environment": ("export LR\n", "", "`LR` is used in line 7"),
    "a default": ("GB=$LR\n", "", "`LR` is used in line 7"),
}


@pytest.mark.parametrize(("more", "flag", "why"), SHARED.values(), ids=SHARED.keys())
def test_a_variable_that_has_other_uses_stays(more: str, flag: str, why: str) -> None:
    heredoc = "#\ncat > cfg.yaml <<EOF\nlr: $LR\nEOF\n"
    read = script(heredoc + more)
    text = read.text.rstrip("\n") + flag + "\n"
    if more.startswith("GB"):
        text = text.replace("LR=1e-3", "LR=${LR:-1e-3}")
    read = Script.parse(text, "train.sh")
    cfg = next(d for d in read.documents() if d.path == "cfg.yaml")
    with pytest.raises(UserError, match=why):
        read.with_document("cfg.yaml", cfg.text.replace("1e-3", "0.5"))


UNKNOWN = {
    "a condition": ('if [ -n "$(ls)" ]; then\n{}fi\n', "a condition or a loop"),
    "a loop": ("for i in 1 2; do\n{}done\n", "a condition or a loop"),
    "an edit in place": ("{}sed -i s/1/2/ cfg.yaml\n", "`sed` in line 6 may change it"),
    "a program": ("{}./fill.sh cfg.yaml\n", "may change it"),
    "more output": ("{}date >> cfg.yaml\n", "output of a program"),
    "two texts": ("{0}{0}", "lines 3 and 6 write it"),
    "no beginning": ("cat >> cfg.yaml <<EOF\na: 1\nEOF\n", "only adds to it"),
}


@pytest.mark.parametrize(("around", "why"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_text_that_something_else_decides_on_is_not_known(around: str, why: str) -> None:
    read = script(around.format("cat > cfg.yaml <<EOF\nlr: $LR\nEOF\n"))
    document = only(read)
    assert why in document.why
    with pytest.raises(UserError, match="cannot be changed where the script writes it"):
        read.with_document("cfg.yaml", "lr: 2\n")


def test_what_only_a_run_can_tell_stands_for_itself() -> None:
    document = only(
        script("cat > cfg.yaml <<EOF\na: $(hostname)\nb: `date`\nc: $X\nlr: $LR\nEOF\n")
    )
    assert list(document.unknown.values()) == ["$(hostname)", "`date`", "$X"]
    assert document.text.endswith("lr: 1e-3\n")
    assert all(word in document.text for word in document.unknown)


def test_a_flag_and_a_variable_of_the_heredoc_keep_apart() -> None:
    read = script("cat > cfg.yaml <<EOF\nlr: $LR\nEOF\n")
    assert only(read.with_env("LR", "0.5")).text == "lr: 0.5\n"
    assert only(read.with_flag("--seed", "3")).text == "lr: 1e-3\n"


def test_lines_of_the_file_have_their_place_in_the_script() -> None:
    document = only(script(WAYS["several parts"]))
    assert [document.line_of(n) for n in (1, 2)] == [4, 7]
    assert document.is_own == (False, True)


def test_a_program_behind_a_heredoc_is_found() -> None:
    read = Script.parse("cat > cfg.yaml <<EOF && torchrun train.py\na: 1\nEOF\n", "train.sh")
    assert read.training_command().entry == "train.py"


STARTED = {  # a heredoc that is started as a script
    "quoted": "cat <<'EOF' > run.sh\ntorchrun train.py --lr 3 \\\n  --x $1\nEOF\nbash run.sh a\n",
    "expanded": "N=2\ncat > run.sh <<EOF\n#!/bin/bash\nP=4\ntorchrun train.py --lr 3 --n $N "
    '--p \\$P --x "a b" \\$1\nEOF\nchmod +x run.sh\n./run.sh 7\n',
    "in a folder": "mkdir -p d\ncat > d/run.sh <<EOF\ncd d\ntorchrun ../train.py --lr 3\nEOF\n"
    "sh d/run.sh\n",
}


@pytest.mark.parametrize("text", STARTED.values(), ids=STARTED.keys())
def test_a_script_in_a_heredoc_is_read_and_edited(text: str, shell: RealShell) -> None:
    started = Script.parse(text, "train.sh")
    (before,) = shell.run(text)
    assert spread(before.arguments) == read_words(started)
    assert started.calls() == ()
    edits = (
        started.with_flag("--lr", "0.5"),
        started.with_flag("--seed", "$x"),
        started.without_flag("--lr"),
        started.with_env("FOO", "1"),
    )
    for edited_script in edits:
        (after,) = shell.run(edited_script.text)
        assert sorted(spread(after.arguments)) == sorted(read_words(edited_script))
    assert after.environment["FOO"] == "1"


@pytest.mark.parametrize("more", ["sed -i s/3/4/ run.sh\n", 'echo "--a 3" >> run.sh\n'])
def test_a_script_in_a_heredoc_that_is_changed_is_not_read(more: str) -> None:
    text = "cat <<'EOF' > run.sh\ntorchrun train.py --lr 3\nEOF\n" + more + "bash run.sh\n"
    with pytest.raises(UserError, match="no command that starts training"):
        Script.parse(text, "train.sh").training_command()
