"""Heredocs that a command reads: the words of a launch, or the script of a shell."""

import pytest
from real_shell import RealShell, spread
from real_shell import read as read_words

from infrarsi.errors import UserError
from infrarsi.scripts import Script

GIVEN = {
    "read into a variable": "read -r -d '' ARGS <<EOF\n  train.py --lr 3 \\\n   --x a\nEOF\n"
    "torchrun $ARGS\n",
    "read, and failing allowed": "LR=3\nread -r -d '' ARGS <<EOF || true\n--lr $LR --x a\nEOF\n"
    "torchrun train.py $ARGS\n",
    "read as it stands": "IFS= read -r -d '' ARGS <<'EOF' || true\n--lr 3 --x a\nEOF\n"
    "torchrun train.py $ARGS\n",
    "printed by cat": "ARGS=$(cat <<EOF\n--lr 3\n--x a\n\nEOF\n)\n"
    'torchrun train.py $ARGS "$ARGS"\n',
    "a shell": "bash <<'EOF'\nP=2\ntorchrun --nproc_per_node $P train.py --lr 3 --x a\nEOF\n",
    "a shell with words": "N=2\nbash -s a b <<EOF > log 2>&1\ntorchrun train.py --lr 3 --n $N "
    '--x \\$1 --y "\\$2"\nEOF\n',
    "a shell behind env": "env A=1 bash -e -s <<EOF\ntorchrun train.py --lr 3 --x \\$A\nEOF\n",
}


@pytest.mark.parametrize("text", GIVEN.values(), ids=GIVEN.keys())
def test_what_a_command_reads_is_read_and_edited(text: str, shell: RealShell) -> None:
    read = Script.parse(text, "train.sh")
    (before,) = shell.run(text)
    assert spread(before.arguments) == read_words(read)
    flags = ("--seed",) if text == GIVEN["printed by cat"] else ("--seed", "--lr")
    for flag in flags:  # of `$ARGS "$ARGS"`, no flag stands for itself
        edited = read.with_flag(flag, "0.5")
        (after,) = shell.run(edited.text)
        assert sorted(spread(after.arguments)) == sorted(read_words(edited))
        assert sorted(spread(after.arguments)) != sorted(spread(before.arguments))


COUNTED = {
    "awk": "N=$(echo $G | awk -F \",\" '{print NF}')",
    "awk, joined": "N=`echo $G | awk -F, '{ print NF }'`",
    "awk of a string": "N=$(awk -F',' '{print NF}' <<< \"$G\")",
    "tr and wc": "N=$(echo $G | tr ',' '\\n' | wc -l)",
    "tr and words": "N=$(echo $G | tr ',' ' ' | wc -w)",
    "an array": "A=(${G//,/ })\nN=${#A[@]}",
}


@pytest.mark.parametrize("text", COUNTED.values(), ids=COUNTED.keys())
@pytest.mark.parametrize("gpus", ["0,1,2", "3"], ids=["three", "one"])
def test_the_parts_of_a_list_are_counted(text: str, gpus: str, shell: RealShell) -> None:
    script = f'G="{gpus}"\n{text}\ntorchrun --nproc_per_node $N train.py\n'
    (call,) = shell.run(script)
    assert spread(call.arguments) == read_words(Script.parse(script, "train.sh"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python - <<EOF\nprint(1)\nEOF\n", "`python` in line 1 reads its program from a heredoc"),
        ("A=1\nsbatch <<EOF\ntorchrun x.py\nEOF\n", "`sbatch` in line 2 reads the script"),
        ("make train\n", "what `make` in line 1 starts is said in another file"),
        ("pixi run train\n", "what `pixi run` in line 1 starts is said in another file"),
        ("composer train.py\n", "`composer` in line 1 starts jobs of MosaicML Composer"),
    ],
    ids=["python", "sbatch", "make", "a task", "another launcher"],
)
def test_what_starts_elsewhere_is_said(text: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        Script.parse(text, "train.sh").training_command()
    assert why in caught.value.what
