"""Why a script starts no training that can be read."""

import posixpath
from collections.abc import Iterator, Sequence

from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.interpreter import Invocation
from infrarsi.scripts.launchers import FOREIGN, INDIRECT
from infrarsi.scripts.launching import is_launcher
from infrarsi.scripts.state import State
from infrarsi.scripts.wrapping import Chain


def no_training(invocations: Sequence[Invocation], expander: Expander, end: State) -> str:
    """What the script does instead, in one sentence."""
    for told in _elsewhere(invocations, expander):
        return told
    if end.ended and end.ended_at:
        return (
            f"the script ends in line {end.ended_at}, with what is set now, before any "
            "command that starts training"
        )
    names = sorted({f.text for i in invocations for f in i.fields[:1] if f.text})
    ran = ", ".join(f"`{name}`" for name in names[:12]) or "nothing"
    return (
        "no command that starts training (torchrun, python, accelerate launch, deepspeed) "
        f"was found; the script runs {ran}"
    )


def _elsewhere(invocations: Sequence[Invocation], expander: Expander) -> Iterator[str]:
    """Commands that start what stands in no file, in a file of theirs, or in another framework."""
    for invocation in invocations:
        chain = Chain.of(invocation.fields, is_launcher)
        inner = chain.fields[chain.inner].text if chain.inner < len(chain.fields) else None
        name, line = posixpath.basename(inner or ""), expander.line(invocation.node)
        if invocation.given is not None and name.startswith(("python", "sbatch")):
            what = "its program" if name.startswith("python") else "the script that it submits"
            yield f"`{name}` in line {line} reads {what} from a heredoc, which has no file"
        elif name in FOREIGN:
            yield (
                f"`{name}` in line {line} starts jobs of {FOREIGN[name]}, whose training loop is "
                "not understood"
            )
        elif name in INDIRECT or _is_task(chain, name):
            first = name if name in INDIRECT else chain.wrapped[-1].wrapper.name
            yield f"what `{first}` in line {line} starts is said in another file, which is not read"


def _is_task(chain: Chain, name: str) -> bool:
    """Whether a runner is given a word that may be a task: `pixi run train`."""
    runner = chain.wrapped[-1].wrapper.name if chain.wrapped else ""
    return bool(name) and runner.partition(" ")[0] in ("pixi", "hatch", "pdm", "rye", "poetry")
