"""One Ray for one command: its own local one, or a cluster that is already there."""

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path

from infrarsi.errors import ExternalError, UserError
from infrarsi.node.environment import own_values
from infrarsi.node.patience import Rules
from infrarsi.node.wire import RunnerSettings
from launchers import janitor
from launchers.process_groups import another_process_group

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_worker_niceness": "0",  # the job inherits it, and 15 is not what the user runs at
    "RAY_memory_monitor_refresh_ms": "0",  # its kill of a trial crashes Tune (Ray 2.60)
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints a box also with verbose=0
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}
"""Must be set before Ray starts; see the measurements in README.md of this room."""
_PREFIX = "irsi-"
_OBJECT_STORE_BYTES = 100 << 20  # results are small, data never passes through Ray
_CONNECT_S = 5.0
_NO_RAY = (RuntimeError, ConnectionError, OSError, ValueError)
_LOGGERS = ("ray", "ray.tune", "ray.air", "ray.train")


class RaySession:
    """A context manager; Ray runs while it is entered.

    Without an address it starts a Ray of its own, of which nothing is left afterwards; a cluster
    named by `address`, or by RAY_ADDRESS as under `ray job submit`, is joined and left as it was.
    Prints nothing. Raises ExternalError if Ray cannot be started or reached.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        environ: MutableMapping[str, str] = os.environ,
        num_cpus: int | None = None,
    ) -> None:
        """`num_cpus` of the local Ray, by default all that this process may use."""
        self._address = address or environ.get("RAY_ADDRESS") or None
        self._environ = environ
        self._num_cpus = num_cpus or len(os.sched_getaffinity(0))
        self._before: dict[str, str | None] = {}
        self._levels: dict[str, int] = {}
        self._print_death: Callable[..., None] | None = None
        self._folder: Path | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self.own: Mapping[str, str | None] | None = None
        self.start_s = 0.0

    def settings(self, rules: Rules = Rules()) -> RunnerSettings:  # noqa: B008  # frozen
        """What the node runners of this session must be told."""
        return RunnerSettings(rules, self.own)

    @property
    def is_local(self) -> bool:
        """Whether this Ray is the session's own."""
        return self._address is None

    def __enter__(self) -> "RaySession":
        began = time.monotonic()
        if self._address is not None:
            check_address(self._address)
        if self.is_local:
            self.own = own_values(self._environ)
        self._set_environment()
        import ray

        self._quiet()
        try:
            if self.is_local:
                self._start_local()
            else:
                ray.init(
                    address=self._address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=False,
                )
        except Exception as error:
            self.__exit__()
            # A Ray that is not up in time is a bare Exception (2.60, `Node` of `ray._private`).
            if type(error) is not Exception and not isinstance(error, _NO_RAY):
                raise
            what = "a local Ray" if self.is_local else f"Ray at {self._address}"
            raise ExternalError(
                f"{what} cannot be used: {_first_line(error)}",
                fix="leave out `--ray-address` to start a local one"
                if not self.is_local
                else "look for another Ray, a full /tmp or a very busy machine, and try again",
            ) from error
        self._silence_deaths()
        self.start_s = time.monotonic() - began
        return self

    def __exit__(self, *exc: object) -> None:
        import ray
        from ray._private import worker

        ray.shutdown()
        self.remove_folder()
        if self._janitor is not None:
            self._janitor.communicate()
            self._janitor = None
        if self._print_death is not None:
            worker.print_to_stdstream = self._print_death
        for name, value in self._before.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value
        self._before = {}
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    @property
    def folder(self) -> Path | None:
        """A folder of this session alone, which goes with it however it ends; None on a cluster."""
        return self._folder

    def remove_folder(self) -> None:
        """Delete the local Ray's temporary folder; for `Interrupts.before_exit`."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start_local(self) -> None:
        import psutil
        import ray

        remove_stale_folders()
        before = set(psutil.Process().children(recursive=True))
        # Socket paths under it must fit into 107 bytes, so it cannot follow TMPDIR.
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir="/tmp"))
        with another_process_group(), _own_sigterm():
            ray.init(
                address="local",
                num_cpus=self._num_cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=str(self._folder),
            )
        new = set(psutil.Process().children(recursive=True)) - before
        self._janitor = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(Path(janitor.__file__)), str(self._folder)),
                *(f"{process.pid}:{janitor.start_of(process.pid)}" for process in new),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _set_environment(self) -> None:
        for name, value in _SETTINGS.items():
            if name in self._environ:
                continue
            self._before[name] = None
            self._environ[name] = value

    def _silence_deaths(self) -> None:
        """Ray prints the death of any worker on stdout, whatever `log_to_driver` is (2.60).

        It comes back as an outcome with its cause, so nothing is lost.
        """
        from ray._private import worker

        self._print_death = worker.print_to_stdstream
        worker.print_to_stdstream = lambda *args, **options: None

    def _quiet(self) -> None:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            self._levels[name] = logger.level
            logger.setLevel(logging.ERROR)


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's handler of SIGTERM.

    Ray 2.60 puts in its own, which ends the cluster and the process from wherever it is.
    """
    from ray._private import utils

    set_handler = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler


def check_address(address: str) -> None:
    """Refuse an address that no Ray answers at; Ray itself would try for minutes, and print.

    Raises UserError for one that is not `host:port`, ExternalError if nothing listens there.
    """
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        raise UserError(
            f"a Ray address must be `auto` or `host:port` of its head, but got {address!r}",
            where="--ray-address",
            fix="give what `ray start --head` printed, such as 10.0.0.1:6379",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ExternalError(
            f"no Ray answers at {address}: {error.strerror or error}",
            where="--ray-address",
            fix="look at `ray status` on the head, or leave the address out to start a local Ray",
        ) from error


def remove_stale_folders(parent: Path = Path("/tmp")) -> None:
    """Delete the folders of sessions whose process is gone (killed, or a second Ctrl-C)."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        match = re.match(rf"{_PREFIX}(\d+)-", folder.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
