"""The two kinds of exception that cross a room's border.

An outcome of an experiment is a value (`infrarsi.contract.Outcome`), never one of these. Anything
else that is raised is a bug of ours and ends with a traceback and exit code 1.
"""


class UserError(Exception):
    """Something the user can fix; exit code 2, no traceback.

    `what` is the fact with the value found and the values allowed, `where` the place
    (`infrarsi.yaml:12`, `train.sh:31`, a path) or "", `fix` one thing to do.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword arguments when the error comes back from another process."""
        return _rebuild, (type(self), self.what, self.where, self.fix)


class ExternalError(UserError):
    """The world failed: a node, a disk, a service; exit code 3, no traceback."""


def _rebuild(kind: type[UserError], what: str, where: str, fix: str) -> UserError:
    return kind(what, where=where, fix=fix)


class Interrupted(Exception):
    """The user asked to stop; every process of the job has ended; exit code 130.

    Its text, if any, says where things stand and how to go on.
    """
