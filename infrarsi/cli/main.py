"""The `infrarsi` command: dispatch, and the one place where exceptions become text."""

import errno
import os
import signal
import sys
from typing import Annotated

import typer

from infrarsi import __version__
from infrarsi.cli import apply, doctor, exp, finish, init, optimize, report, run
from infrarsi.cli.finding import NEWEST
from infrarsi.errors import ExternalError, Interrupted, UserError

app = typer.Typer(
    name="infrarsi",
    help="Makes an existing training job faster and proves that it is still the same job.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS = ("optimize", "init", "doctor", "run", "report", "apply", "finish", "exp")
app.command("optimize")(optimize.optimize)
app.command("init")(init.init)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("apply")(apply.apply)
app.command("finish")(finish.finish)
app.add_typer(exp.app, name="exp")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"infrarsi {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Makes an existing training job faster and proves that it is still the same job."""


def with_shorthand(arguments: list[str]) -> list[str]:
    """`infrarsi ./train.sh ...` means `infrarsi optimize ./train.sh ...`."""
    if not arguments or arguments[0] in COMMANDS or arguments[0].startswith("-"):
        return arguments
    first = arguments[0]
    if os.path.exists(first) or "/" in first or first.endswith((".sh", ".py", ".yaml", ".yml")):
        return ["optimize", *arguments]
    return arguments


def with_newest(arguments: list[str]) -> list[str]:
    """`run --resume` without a run means the newest one."""
    found = list(arguments)
    for index, word in enumerate(arguments):
        follows = arguments[index + 1] if index + 1 < len(arguments) else "-"
        if arguments[0] == "run" and word == "--resume" and follows.startswith("-"):
            found[index] = f"--resume={NEWEST}"
    return found


def render(error: UserError) -> str:
    """An error for a person: place, fact, one thing to do."""
    head = f"{error.where}: {error.what}" if error.where else error.what
    return f"infrarsi: {head}" + (f"\n  fix: {error.fix}" if error.fix else "")


def main() -> None:
    """Run the command line; exit codes 0, 1 (a bug), 2 (the user's), 3 (the world), 130."""
    sys.argv[1:] = with_newest(with_shorthand(sys.argv[1:]))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends in good order
    try:
        app()
    except ExternalError as error:
        _end(render(error), 3)
    except UserError as error:
        _end(render(error), 2)
    except Interrupted as error:
        _end(_stopped(str(error)), 130)
    except KeyboardInterrupt:
        _end(_stopped(), 130)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of a KeyboardInterrupt
            _end(_stopped(), 130)
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _end(render(ExternalError(f"the disk is full: {error}", fix="free some space")), 3)


def _stopped(how: str = "") -> str:
    return f"infrarsi: stopped; {how or 'nothing of it is running any more'}"


def _end(text: str, code: int) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    sys.exit(code)
