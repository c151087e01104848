"""Run one execution on this machine: unpack, watch, judge, clean up. No Ray here."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infrarsi.contract import ExecutionRequest, ExecutionResult, NodeInfo, Outcome, RunKind
from infrarsi.errors import UserError
from infrarsi.node import tree as trees
from infrarsi.node.captured_log import CapturedLog
from infrarsi.node.checkpoints import left_by_run, listed
from infrarsi.node.collector import INJECT_DIR, SOCKET_VARIABLE, Collector, WitnessConfig
from infrarsi.node.digests import Digests
from infrarsi.node.environment import CommandEnvironment, command_environment
from infrarsi.node.inventory import kernel_kills, local_node
from infrarsi.node.kept import keep
from infrarsi.node.outcomes import Ending, Evidence, Judged, classify, judge_plain
from infrarsi.node.patience import Patience, Rules
from infrarsi.node.printed import printed_numbers
from infrarsi.node.stand_ins import stand_ins
from infrarsi.node.supervised import Ended, Supervised
from infrarsi.ports import Progress

_TICK_S = 0.2
_JUDGED_BYTES = 1 << 20  # of the log's end: where the first failing rank's traceback is
_TAIL_CHARS = 8000
_digests = Digests()


def start(
    request: ExecutionRequest,
    node: NodeInfo | None = None,
    *,
    base: Mapping[str, str] | None = None,
    rules: Rules = Rules(),  # noqa: B008  # frozen
) -> "LocalJob":
    """Start one execution; `base` is the user's environment, by default this process's.

    Raises UserError for a request that this machine cannot serve.
    """
    if request.nodes > 1:
        raise UserError(
            f"`launch.nodes` is {request.nodes}, but the launcher of this version runs one node",
            where="infrarsi.yaml",
            fix="set `launch.nodes: 1`",
        )
    node = node or local_node()
    if request.gpus_per_node > len(node.gpus):
        raise UserError(
            f"`launch.gpus_per_node` is {request.gpus_per_node}, but {node.hostname} offers "
            f"{len(node.gpus)} GPUs",
            where="infrarsi.yaml",
            fix="lower it, or run where there are as many",
        )
    return LocalJob(request, node, dict(os.environ if base is None else base), rules)


class LocalJob:
    """One execution in a thread of this process (the port RunningJob)."""

    def __init__(
        self, request: ExecutionRequest, node: NodeInfo, base: dict[str, str], rules: Rules
    ) -> None:
        self._execution = _Execution(request, node, base, rules)
        self._result: ExecutionResult | None = None
        self._fault: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=request.execution_id, daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> ExecutionResult | None:
        """The result, or None if `timeout_s` passed first; raises only for a bug of ours."""
        if not self._done.wait(timeout_s):
            return None
        if self._fault is not None:
            raise self._fault
        return self._result

    def progress(self) -> Progress:
        """Finished optimizer steps and the median of the steady ones; does not block."""
        return self._execution.progress()

    def stop(self) -> None:
        """Ask it to end; `wait` then gives outcome `stopped`. Does not block."""
        self._execution.stop()

    def _run(self) -> None:
        try:
            self._result = self._execution.run()
        except BaseException as fault:
            self._fault = fault
        finally:
            self._done.set()


class _Execution:
    """The steps of one execution, in the order of `run`."""

    def __init__(
        self, request: ExecutionRequest, node: NodeInfo, base: dict[str, str], rules: Rules
    ) -> None:
        self.request, self.node, self.base, self.rules = request, node, base, rules
        self.receipt = Path(request.receipt_dir)
        self.started_at = time.time()
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.stopped = False
        self.supervised: Supervised | None = None
        self.collector: Collector | None = None

    def progress(self) -> Progress:
        collector = self.collector
        if collector is None:
            return Progress(0, None)
        seen = collector.progress()
        return Progress(seen.steps, seen.step_time_s)

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            if self.supervised is not None:
                self.supervised.stop()

    def run(self) -> ExecutionResult:
        try:
            tree = trees.unpack(
                self.request.snapshot,
                self.request.overlay,
                self.receipt,
                Path(self.request.cache_dir),
                _resume_from(self.request),
            )
        except UserError as error:
            return self._result(Judged(Outcome.USER_ERROR, error.what))
        except OSError as error:
            return self._result(Judged(Outcome.INFRA, f"the project could not be copied: {error}"))
        try:
            before = _digests.differing(tree.folder, self.request.frozen)
            if before:
                reason = f"the frozen file `{before[0]}` is not what the contract says it is"
                result = self._result(Judged(Outcome.USER_ERROR, reason))
                return replace(result, frozen_changed=before)
            if self.request.kind is RunKind.PLAIN:
                return self._run_plain(tree)
            return self._run_in(tree)
        except OSError as error:
            return self._result(Judged(Outcome.INFRA, f"{type(error).__name__}: {error}"))
        finally:
            for path in tree.removable:
                if path != tree.sinks or not self.rules.keep_sinks:
                    trees.remove_tree(path)

    def _run_in(self, tree: trees.WorkTree) -> ExecutionResult:
        request = self.request
        stamps = trees.stamps(tree.links)
        kills = kernel_kills()
        environment = command_environment(self.base, request, tree, self.node)
        config = WitnessConfig(
            key=request.witness_key,
            kind=request.kind,
            optimizer_steps=request.optimizer_steps,
            ends_by=request.ends_by,
            roots=(
                *(str(path) for path in (tree.folder, tree.sinks, tree.scratch)),
                request.cache_dir,
            ),
        )
        with Collector(self.receipt, config) as collector:
            self.collector = collector
            ending, detail, ended, log = self._command(tree, environment, collector)
            ranks = collector.ranks()
        kills_after = kernel_kills()
        text = log.tail(_JUDGED_BYTES)
        evidence = Evidence(
            ending=ending,
            exit_code=ended.exit_code,
            ranks=ranks,
            log=text,
            optimizer_steps=request.optimizer_steps,
            ends_by=request.ends_by,
            detail=detail,
            folder=str(tree.folder),
            kernel_kills=None if kills is None or kills_after is None else kills_after - kills,
            withheld=environment.withheld,
        )
        judged = classify(evidence)
        return replace(
            self._result(judged),
            exit_code=ended.exit_code,
            ranks=ranks,
            checkpoints=self._checkpoints(tree, judged, environment),
            command_s=ended.seconds or 0.0,
            frozen_changed=(
                *_digests.differing(tree.folder, request.frozen),
                *trees.changed(stamps, trees.stamps(tree.links)),
            ),
            log_tail=text[-_TAIL_CHARS:],
            leftover=_leftover(ended),
            printed=printed_numbers(self.receipt / "stdout.log"),
            wall_s=time.monotonic() - self.began,
        )

    def _checkpoints(
        self, tree: trees.WorkTree, judged: Judged, environment: CommandEnvironment
    ) -> dict[str, dict[str, Any]]:
        """What a run left in its sinks; kept where that is asked for.

        After a timed run nothing is read: the files are listed.
        """
        request = self.request
        if judged.outcome is not Outcome.OK:
            return {}
        removed = request.overlay.remove
        if request.kind is RunKind.TIMED:
            return listed(tree, removed)[0]
        found = left_by_run(tree, removed, environment.variables["PATH"])
        if request.keep_checkpoints and not self.rules.keep_sinks:
            keep(tree.sinks, tree.folder, removed, self.receipt)
        return found

    def _run_plain(self, tree: trees.WorkTree) -> ExecutionResult:
        """A command that is not the job: no witness, and the exit code alone decides."""
        request = self.request
        environment = command_environment(self.base, request, tree, self.node)
        ending, detail, ended, log = self._command(tree, environment, None)
        return replace(
            self._result(judge_plain(ending, ended.exit_code, detail)),
            exit_code=ended.exit_code,
            command_s=ended.seconds or 0.0,
            frozen_changed=_digests.differing(tree.folder, request.frozen),
            log_tail=log.tail(_JUDGED_BYTES)[-_TAIL_CHARS:],
            leftover=_leftover(ended),
            wall_s=time.monotonic() - self.began,
        )

    def _command(
        self, tree: trees.WorkTree, environment: CommandEnvironment, collector: Collector | None
    ) -> tuple[Ending, str, Ended, CapturedLog]:
        variables = environment.variables
        if collector is not None:
            variables = {**variables, **collector.environment(variables)}
            variables = {**variables, **self._stand_ins(tree, variables)}
        with self.lock:
            if collector is not None and not self.stopped:
                collector.start_clock()
            self.supervised = supervised = Supervised(
                ["bash", "-c", tree.fill_in(self.request.overlay.command)],
                folder=tree.folder,
                environment=variables,
                grace_s=self.rules.grace_s,
                timeout_s=self.request.timeout_s + 30.0,  # only if this thread hangs
                remove=tree.removable,
                watch=self.rules.watch,
            )
            if self.stopped:
                supervised.stop()
        log: CapturedLog | None = None
        try:
            log = CapturedLog(
                supervised.output,
                self.receipt / "stdout.log",
                max_bytes=self.rules.log_bytes,
                secrets=environment.secrets,
            )
            ending, detail, ended = self._watch(supervised, collector)
        finally:
            supervised.close()
            if log is not None:
                log.close()
        return ending, detail, ended, log

    def _stand_ins(self, tree: trees.WorkTree, variables: dict[str, str]) -> dict[str, str]:
        """For a job that starts its training in a container."""
        witness = variables[SOCKET_VARIABLE]
        return stand_ins(
            tree.scratch.with_name("bin"),
            variables,
            writable=(
                str(tree.folder),
                str(tree.sinks),
                str(tree.scratch.parent),
                self.request.cache_dir,
                os.path.dirname(witness),
            ),
            readable=(str(INJECT_DIR.parent), *tree.links.values()),
            passed=(SOCKET_VARIABLE, *self.request.overlay.env),
        )

    def _watch(
        self, supervised: Supervised, collector: Collector | None
    ) -> tuple[Ending, str, Ended]:
        patience = Patience(self.request, self.rules)
        spawned = time.monotonic()
        chosen: tuple[Ending, str] | None = None
        while (ended := supervised.wait(_TICK_S)) is None:
            if chosen is None and not self.stopped:
                now_s = time.monotonic() - spawned
                chosen = (
                    patience.overdue(now_s)
                    if collector is None
                    else patience.lost(now_s, collector.progress())
                )
                if chosen is not None:
                    supervised.stop()
        if ended.lost:
            return Ending.LOST, "the supervisor of the command died", ended
        if ended.by_itself:
            return Ending.FINISHED, "", ended
        if chosen is not None:
            return *chosen, ended
        return Ending.STOPPED, "", ended

    def _result(self, judged: Judged) -> ExecutionResult:
        return ExecutionResult(
            execution_id=self.request.execution_id,
            outcome=judged.outcome,
            reason=judged.reason,
            kind=self.request.kind,
            nodes=(self.node,),
            wall_s=time.monotonic() - self.began,
            started_at=self.started_at,
            peak_at_least_bytes=judged.peak_at_least_bytes,
        )


def _resume_from(request: ExecutionRequest) -> trees.ResumeFrom | None:
    if request.resume_from is None:
        return None
    return trees.ResumeFrom(Path(request.resume_from), request.checkpoint)


def _leftover(ended: Ended) -> tuple[str, ...]:
    return (
        *ended.killed,
        *(f"could not be killed: {name}" for name in ended.survived),
        *(f"shared memory that may be another job's: /dev/shm/{n}" for n in ended.segments_left),
    )
