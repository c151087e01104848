"""One launch script as a value: read it, or get a changed one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from infrarsi.scripts.model import Assignment, TrainingCommand, Write
from infrarsi.scripts.reading import Reading


@dataclass(frozen=True)
class Script:
    """A launch script, or a bare command line (then `path` is "").

    `environ` is what the script is started in and `script_arguments` what it is called with; both
    default to nothing. `root` is the text that stands for the project's folder in values: `pwd`
    there prints it.
    """

    text: str
    path: str = ""
    script_arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    root: str = "$PWD"

    @classmethod
    def parse(
        cls,
        text: str,
        path: str = "",
        *,
        script_arguments: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        root: str = "$PWD",
    ) -> "Script":
        """A script from its text; `path` is relative to the project, "" for a command line.

        Nothing is run and no file is read. Text that is not shell is found out by
        `training_command`.
        """
        return cls(text, path, script_arguments, environ or {}, root)

    @property
    def where(self) -> str:
        """The script's name for messages."""
        return self.path or "launch.command"

    @cached_property
    def reading(self) -> Reading:
        """The script taken apart; internal to this room."""
        source = self.text.encode(errors="surrogateescape")
        name = self.path or "bash"
        return Reading.of(source, name, self.where, self.root, self.environ, self.script_arguments)

    def training_command(self) -> TrainingCommand:
        """The command that starts training; raises UserError if there is none or no single one."""
        return self.reading.training_command()

    def assignments(self) -> dict[str, Assignment]:
        """The variables of the script at its end."""
        return self.reading.assignments()

    def writes(self) -> tuple[Write, ...]:
        """Where the script itself writes to, in the order of its lines."""
        return self.reading.writes()

    def with_flag(self, name: str, value: str | Literal[True]) -> "Script":
        """The script with one flag of the program set; True sets a flag without a value.

        Raises UserError with file and line if that cannot be done safely. Everything else stays
        byte for byte.
        """
        from infrarsi.scripts.editing import set_flag

        return set_flag(self, name, value)

    def without_flag(self, name: str, *, bare: bool = False) -> "Script":
        """The script without a flag; `bare` says that the flag takes no value.

        Without `bare` a word after the flag that is no flag counts as its value.
        """
        from infrarsi.scripts.editing import remove_flag

        return remove_flag(self, name, bare=bare)

    def with_launcher_option(self, name: str, value: str | Literal[True]) -> "Script":
        """The script with one option of the launcher set."""
        from infrarsi.scripts.editing import set_option

        return set_option(self, name, value)

    def without_launcher_option(self, name: str) -> "Script":
        """The script without an option of the launcher."""
        from infrarsi.scripts.editing import remove_option

        return remove_option(self, name)

    def with_env(self, name: str, value: str) -> "Script":
        """The script with an environment variable of the training command set."""
        from infrarsi.scripts.editing import set_env

        return set_env(self, name, value)

    def without_env(self, name: str) -> "Script":
        """The script whose training command does not see an environment variable."""
        from infrarsi.scripts.editing import remove_env

        return remove_env(self, name)
