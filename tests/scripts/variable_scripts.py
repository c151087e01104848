"""Launch scripts that set a variable N to 2 and start a training that depends on it.

`DEFINITIONS` are the ways to set it, `USES` the ways to start a training with it; each of the
first goes with each of the second. A use says what the launcher gets: in its words and variables
`{v}` is the value of N and `{t}` three times that.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Use:
    """How the training is started, and what its launcher gets."""

    text: str
    words: str
    environment: dict[str, str] = field(default_factory=dict)

    def arguments(self, value: int) -> list[str]:
        """The launcher's words where N holds a value."""
        return self.words.format(v=value, t=3 * value).split()

    def variables(self, value: int) -> dict[str, str]:
        """The variables that depend on N, where it holds a value."""
        return {k: v.format(v=value, t=3 * value) for k, v in self.environment.items()}


DEFINITIONS = {
    "plain": "N=2",
    "exported": "export N=2",
    "default": "N=${N:-2}",
    "quoted default": 'N="${N:-2}"',
    "exported default": "export N=${N:-2}",
    "exported afterwards": "N=2\nexport N",
    "exported before": "export N\nN=2",
    "exported late": "N=2\nA=$N\nexport N",
    "assigned twice": "N=4\nN=2",
    "exported twice": "export N=4\nexport N=2",
    "default put in place": ': "${N:=2}"',
    "set if empty": 'if [ -z "$N" ]; then\n  N=2\nfi',
    "set if empty, in short": '[ -n "${N:-}" ] || N=2',
    "two branches": "if [ -d /nonexistent ]; then N=8; else N=2; fi",
    "case": 'case "${MODE:-}" in\n  big) N=8 ;;\n  *) N=2 ;;\nesac',
    "branch that reads it": 'N=${N:-2}\nif [ "$N" -gt 64 ]; then echo many; fi',
    "declared": "declare -x N=2",
    "readonly": "readonly N=2",
    "integer": "declare -i N=2",
    "among others": "A=1 N=2 B=3",
    "in one line": "A=1; N=2; B=3",
    "several exports": "export A=1 N=2 B=3",
    "in a function": "setup() {\n  export N=${N:-2}\n}\nsetup",
    "positional": "N=${1:-2}",
    "arithmetic": "N=$((1 + 1))",
    "from a command": "N=$(echo 2)",
    "from another variable": "GPUS=2\nN=$GPUS",
    "and list": "true && N=2",
    "comment": "# N=9 for the large ones\nN=2  # was N=4",
    "arguments parsed": "N=2\nwhile [ $# -gt 0 ]; do\n  case $1 in --n) N=$2; shift ;; esac\n"
    "  shift\ndone",
    "strict shell": "set -euo pipefail\nN=${N:-2}",
    "file read in before": "source ./other.sh\nN=${N:-2}",
    "file that uses it": "export N=2\n. ./uses.sh",
}
USES = {
    "joined": Use('torchrun --nproc_per_node="$N" train.py', "--nproc_per_node={v} train.py"),
    "separate": Use("torchrun --nproc-per-node $N train.py", "--nproc-per-node {v} train.py"),
    "not at all": Use("torchrun train.py --n 2", "train.py --n 2"),
    "derived": Use(
        "W=$((N * 3))\ntorchrun --nproc_per_node=$N train.py --world $W",
        "--nproc_per_node={v} train.py --world {t}",
    ),
    "in front": Use("N=$N torchrun train.py --n $N", "train.py --n {v}"),
    "another variable": Use(
        "OMP_NUM_THREADS=$N torchrun train.py", "train.py", {"OMP_NUM_THREADS": "{v}"}
    ),
    "another export": Use(
        "export THREADS=$((N * 3))\ntorchrun train.py", "train.py", {"THREADS": "{t}"}
    ),
    "array": Use('A=(--n "$N" --x 1)\ntorchrun train.py "${A[@]}"', "train.py --n {v} --x 1"),
    "string": Use('ARGS="--n $N"\ntorchrun train.py $ARGS', "train.py --n {v}"),
    "command in a string": Use('CMD="torchrun train.py --n $N"\n$CMD', "train.py --n {v}"),
    "eval": Use('CMD="torchrun train.py --n $N"\neval ${CMD}', "train.py --n {v}"),
    "given to a function": Use('run() { torchrun "$@"; }\nrun train.py --n $N', "train.py --n {v}"),
    "in a function": Use("run() {\n  torchrun train.py --n $N\n}\nrun", "train.py --n {v}"),
    "default at its use": Use("torchrun train.py --n ${N:-2}", "train.py --n {v}"),
    "env": Use("env A=b torchrun train.py --n $N", "train.py --n {v}"),
    "env of its own": Use("env N=$N torchrun train.py --n $N", "train.py --n {v}"),
    "empty environment": Use(
        'env -i PATH="$PATH" RECORD="$RECORD" torchrun train.py --n $N', "train.py --n {v}"
    ),
    "pipeline": Use("torchrun train.py --n $N 2>&1 | cat", "train.py --n {v}"),
    "subshell": Use("(cd . && torchrun train.py --n $N)", "train.py --n {v}"),
    "condition": Use('if [ "$N" -gt 0 ]; then\n  torchrun train.py --n $N\nfi', "train.py --n {v}"),
    "substitution": Use('torchrun train.py --n "$(echo $N)"', "train.py --n {v}"),
    "here document": Use(
        "cat > n.txt <<EOF\nn: $N\nEOF\ntorchrun train.py --n $(tail -c 2 n.txt)",
        "train.py --n {v}",
    ),
    "nested script": Use("bash ./nested.sh; torchrun train.py --n $N", "train.py --n {v}"),
    "continuation": Use("torchrun \\\n  train.py \\\n  --n $N", "train.py --n {v}"),
    "accelerate": Use(
        "accelerate launch --num_processes $N train.py", "launch --num_processes {v} train.py"
    ),
    "python": Use('exec python -u train.py --n "${N}"', "-u train.py --n {v}"),
}
FILES = {"other.sh": "A=1\n", "uses.sh": "M=$N\n", "nested.sh": "true $N\n"}
LOST = {
    "appended": "N=\nN+=2",
    "read": "read N <<< 2",
    "printf": "printf -v N 2",
    "loop": "for N in 1 2; do :; done",
    "let": "let N=2",
    "arithmetic": "((N = 2))",
    "counted": "N=1\n((N++)) || true",
    "eval": 'eval "N=2"',
    "exported by name": "export N=1\nexport $(echo N=2)",
    "eval of a computed text": 'N=1\nSET=N=2\neval "$SET"',
    "array": "N=(2)",
    "element": "N[0]=2",
    "another meaning before": "N=4\nM=$N\nN=2",
    "loop that counts": "N=1\nwhile [ $N -lt 2 ]; do N=$((N + 1)); done",
    "unset": "N=1\nunset N\nN=2",
    "file that sets it": "source ./sets.sh",
    "file that is not known": "source /etc/hostname-of-the-job.sh || true\nN=2",
    "name in a variable": "declare -n REF=N\nREF=2",
}
