"""One launch script as a value: read it, or get a changed one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from infrarsi.errors import UserError
from infrarsi.scripts.documents import Document, documents, edits_of
from infrarsi.scripts.editing import remove_flag, remove_option, set_flag, set_option
from infrarsi.scripts.environment import remove_env, set_env
from infrarsi.scripts.launchers import gives_its_own, starts_itself, starts_processes
from infrarsi.scripts.model import Assignment, ScriptCall, TrainingCommand, Write, option_key
from infrarsi.scripts.reading import Reading
from infrarsi.scripts.spelling import Edit, apply
from infrarsi.scripts.variables import Files

_PROBE = "infrarsi probe"
_Fact = tuple[str, str | bool | None, bool]  # name, value, whether it depends on a condition


@dataclass(frozen=True)
class Script:
    """A launch script, or a bare command line (then `path` is "").

    `environ` is what the script is started in and `script_arguments` what it is called with; both
    default to nothing. A value of None is one that cannot be known, and arguments of None are any.
    `root` is the text that stands for the project's folder in values: `pwd` there prints it.
    """

    text: str
    path: str = ""
    script_arguments: tuple[str | None, ...] | None = ()
    environ: Mapping[str, str | None] = field(default_factory=dict)
    root: str = "$PWD"
    files: Files | None = field(default=None, compare=False)

    @classmethod
    def parse(
        cls,
        text: str,
        path: str = "",
        *,
        script_arguments: tuple[str | None, ...] | None = (),
        environ: Mapping[str, str | None] | None = None,
        root: str = "$PWD",
        files: Files | None = None,
    ) -> "Script":
        """A script from its text; `path` is relative to the project, "" for a command line.

        `files` gives the text of a file of the project that the script reads in, None where there
        is none; it is asked when the environment is edited. Nothing is run. Text that is not shell
        is found out by `training_command`.
        """
        return cls(text, path, script_arguments, environ or {}, root, files)

    @property
    def where(self) -> str:
        """The script's name for messages."""
        return self.path or "launch.command"

    @cached_property
    def reading(self) -> Reading:
        """The script taken apart; internal to this room."""
        return self._read()

    @cached_property
    def _holder(self) -> Reading:
        """The reading that settings change: of the script, or of a text inside it."""
        return self.reading.holder()

    @property
    def _is_command(self) -> bool:
        """Whether there are no lines to put others between."""
        return not self.path or b"\n" not in self._holder.expander.source.strip()

    def training_command(self) -> TrainingCommand:
        """The command that starts training; raises UserError if there is none or no single one."""
        return self.reading.training_command()

    def programs(self) -> tuple[TrainingCommand, ...]:
        """Every command that starts a Python program, the training command among them."""
        return self.reading.programs()

    def calls(self) -> tuple[ScriptCall, ...]:
        """Other scripts that this one runs."""
        return self.reading.calls()

    def assignments(self) -> dict[str, Assignment]:
        """The variables of the script at its end."""
        return self.reading.assignments()

    def writes(self) -> tuple[Write, ...]:
        """Where the script itself writes to, in the order of its lines."""
        return self.reading.writes()

    def documents(self) -> tuple[Document, ...]:
        """The files that heredocs of the script write."""
        return documents(self.reading)

    def with_document(self, path: str, text: str) -> "Script":
        """The script that writes this text into a file, edited where the heredoc stands.

        A value that comes from a variable is changed where the variable is assigned, if nothing
        else uses it. Raises UserError with file and line otherwise.
        """
        wanted = self._facts()
        wanted.documents[path] = text
        edits = edits_of(self.reading, path, text)
        source = apply(self.reading.expander.source, edits)
        new = replace(self, text=source.decode(errors="surrogateescape"))
        if new._facts() != wanted:
            line = next((d.line for d in self.documents() if d.path == path), 1)
            raise UserError(
                f"`{path}` cannot be changed without changing something else as well",
                where=f"{self.where}:{line}",
                fix="write the value out in the heredoc itself",
            )
        return new

    def with_flag(self, name: str, value: str | Literal[True], *, joined: bool = False) -> "Script":
        """The script with one flag of the program set; True sets a flag without a value.

        A `name` without a dash is the key of a `key=value` argument; `joined` says that a new flag
        takes its value in the same word (`--lr=0.1`). Raises UserError with file
        and line if that cannot be done safely. Everything else stays byte for byte.
        """
        wanted = self._facts()
        wanted.arguments = _with(wanted.arguments, name, value)
        edits = set_flag(self._holder, name, value, joined=joined)
        return self._edited(edits, wanted, name)

    def without_flag(self, name: str, *, bare: bool = False) -> "Script":
        """The script without a flag; `bare` says that the flag takes no value.

        Without `bare` a word after the flag that is no flag counts as its value.
        """
        wanted = self._facts()
        wanted.arguments = _without(wanted.arguments, name, bare)
        return self._edited(remove_flag(self._holder, name, bare=bare), wanted, name)

    def is_launcher_option(self, name: str) -> bool:
        """Whether a flag of this name goes to the launcher, and not to the program.

        So it is where the launcher is given it, or where no program can be meant
        (`--nproc_per_node`); a flag that the program is given is the program's.
        """
        command = self.training_command()
        if starts_itself(command.launcher) or command.argument(name) is not None:
            return False
        return command.option(name) is not None or starts_processes(command.launcher, name)

    def with_launcher_option(self, name: str, value: str | Literal[True]) -> "Script":
        """The script with one option of the launcher set; `-` and `_` in its name are the same."""
        wanted = self._facts()
        wanted.options[option_key(name)] = value
        return self._edited(set_option(self._holder, name, value), wanted, name)

    def without_launcher_option(self, name: str) -> "Script":
        """The script without an option of the launcher."""
        wanted = self._facts()
        wanted.options.pop(option_key(name), None)
        return self._edited(remove_option(self._holder, name), wanted, name)

    def with_env(self, name: str, value: str) -> "Script":
        """The script with an environment variable of the training command set.

        What the script itself makes of the variable follows, as if every assignment of it gave
        this value. Raises UserError where that cannot be proven.
        """
        self._insist_on_reaching(name)
        edits = set_env(self._holder, name, value, self.files, is_command=self._is_command)
        wanted = self._facts({name: value})
        wanted.environment[name] = value
        return self._edited(edits, wanted, name)

    def without_env(self, name: str) -> "Script":
        """The script whose training command does not see an environment variable.

        Words of the command that depend on it get the script's own default; where there is none,
        this raises UserError.
        """
        wanted = self._facts()
        decides = self._decides(name)
        if decides:
            wanted = self._without(name)._facts()
        wanted.environment.pop(name, None)
        edits = remove_env(
            self._holder, name, self.files, is_command=self._is_command, decides=decides
        )
        return self._edited(edits, wanted, name)

    def _insist_on_reaching(self, name: str) -> None:
        """A variable that the launcher sets for its programs must do something in its own words."""
        command = self.training_command()
        options = {option_key(option.name) for option in command.launcher_options}
        why = gives_its_own(command.launcher, name, options)
        if why is not None and not self._decides(name):
            raise UserError(
                f"the variable `{name}` would not reach the program: {why}",
                where=f"{self.where}:{command.line}",
                fix="set the option of the launcher (`launcher:--...`) instead",
            )

    def _without(self, name: str) -> "Script":
        rest = {n: v for n, v in self.environ.items() if n != name}
        return replace(self, environ=rest)

    def _decides(self, name: str) -> bool:
        """Whether the command depends on a variable, apart from that variable itself."""
        now = self._facts()
        try:
            other = self._facts({name: _PROBE})
        except UserError:
            return True
        now.environment.pop(name, None)
        other.environment.pop(name, None)
        return now != other

    def _read(self, forced: Mapping[str, str] | None = None) -> Reading:
        source = self.text.encode(errors="surrogateescape")
        name = self.path or "bash"
        return Reading.of(
            source, name, self.where, self.root, self.environ, self.script_arguments, forced
        )

    def _facts(self, forced: Mapping[str, str] | None = None) -> "_Facts":
        reading = self.reading if forced is None else self._read(forced)
        command = reading.training_command()
        return _Facts(
            [(a.name, a.value, bool(a.condition)) for a in command.arguments],
            {option_key(a.name): a.value for a in command.launcher_options},
            {name: a.value for name, a in command.environment.items()},
            command.launcher,
            command.entry,
            command.cwd,
            {d.path: d.text for d in documents(reading) if d.path not in reading.started_heredocs},
        )

    def _edited(self, edits: list[Edit], wanted: "_Facts", name: str) -> "Script":
        """The edited script, refused unless reading it gives exactly what was asked for."""
        edits = self._holder.outward(edits, name)
        source = apply(self.reading.expander.source, edits)
        new = replace(self, text=source.decode(errors="surrogateescape"))
        if new._facts().apart(name) != wanted.apart(name):
            raise UserError(
                f"`{name}` cannot be changed without changing something else as well",
                where=f"{self.where}:{self.training_command().line}",
                fix="write the training command in a simpler form",
            )
        return new


@dataclass
class _Facts:
    """What an edit must keep, apart from what it is asked to change."""

    arguments: list[_Fact]
    options: dict[str, str | bool | None]
    environment: dict[str, str | None]
    launcher: str
    entry: str | None
    cwd: str | None
    documents: dict[str, str]

    def apart(self, name: str) -> "_Facts":
        """With that argument at the end: where a flag stands among the others is no matter."""
        rest = [fact for fact in self.arguments if fact[0] != name]
        own = [fact for fact in self.arguments if fact[0] == name]
        return replace(self, arguments=rest + own)


def _with(facts: list[_Fact], name: str, value: str | Literal[True]) -> list[_Fact]:
    if any(fact[0] == name for fact in facts):
        return [(name, value, False) if fact[0] == name else fact for fact in facts]
    return [*facts, (name, value, False)]


def _without(facts: list[_Fact], name: str, bare: bool) -> list[_Fact]:
    """A word behind a flag that takes no value is an argument of its own."""
    kept: list[_Fact] = []
    for fact in facts:
        if fact[0] != name:
            kept.append(fact)
        elif bare and fact[1] is not True:
            kept.append(("", fact[1], fact[2]))
    return kept
