"""One line of a job's output as text and the process that it came from.

Launchers put a tag before each line so that the lines of several processes can be told apart:
`[rank3]:` (torchrun), `[default3]:` (torchrun with `--tee`), `3: ` (`srun --label`),
`[1,3]<stderr>:` (mpirun), `worker-2: ` (pdsh), `(TrainWorker pid=812, ip=10.0.0.2)` (Ray).
Whoever reads a log takes the tag off here, and only here.
"""

import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_STAMP = r"(?:\d{4}-\d\d-\d\dT[\d:.]+Z (?:stdout F |stderr F )?)?"  # of a container's log
_TAG = re.compile(
    _STAMP + r"(?:\[(?:rank|default)?(?P<rank>\d+)\]:\s?"
    r"|(?P<task>\d{1,4}): (?=\S|\s{2})"
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:out|err)>:\s?"
    r"|(?P<host>[a-z][a-z0-9]*(?:-[a-z0-9]+)*-\d+): "
    r"|\((?P<actor>\w+ pid=\d+(?:, ip=[\d.]+)?)\)\s?)"
)


def plain(text: str) -> str:
    """The text without the escape sequences of a terminal."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def split_tag(line: str) -> tuple[str, str]:
    """(the tag, the line without it); the tag is "" where there is none.

    Ranks are tagged `rank3` whichever launcher wrote it.
    """
    source = ""
    while (match := _TAG.match(line)) is not None and match.end():
        rank = match["rank"] or match["task"] or match["mpi"]
        source = f"rank{int(rank)}" if rank else source or match["host"] or match["actor"]
        line = line[match.end() :]
    return source, line
