"""How much step times vary when nothing was changed.

Two sources: steps within a run, and launches of the same job. Only the second limits what pairs
can resolve, since a run of n steps averages the first away. All are standard deviations of logs,
so 0.01 means one per cent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.stats.paired import log_ratio, t_quantile


@dataclass(frozen=True)
class Noise:
    """The noise of one job on one set of nodes, from `runs` runs of the reference.

    `within_log_sd`: of one steady step within a run (median over runs). `run_log_sd`: of a run's
    step time between launches. `pair_log_sd`: of the log ratio of a pair, from `degrees` degrees
    of freedom. `aa`: log ratios of reference against reference, in ABBA order.
    """

    within_log_sd: float
    run_log_sd: float
    pair_log_sd: float
    runs: int
    degrees: int
    aa: tuple[float, ...] = ()

    @property
    def bias_bound(self) -> float:
        """The bias between the two places of a pair that the A/A pairs prove, as a log ratio.

        The part of the mean A/A ratio that exceeds its own noise at 95 %; 0 with fewer than three
        A/A pairs. It is not an upper limit of what bias there may be: ABBA order takes care of
        that, since at an even number of pairs either arm went first equally often.
        """
        count = len(self.aa)
        if count < 3:
            return 0.0
        mean = math.fsum(self.aa) / count
        variance = math.fsum((x - mean) ** 2 for x in self.aa) / (count - 1)
        margin = t_quantile(0.975, count - 1) * math.sqrt(variance / count)
        return max(0.0, abs(mean) - margin)


def aa_log_ratios(step_times_s: Sequence[float]) -> tuple[float, ...]:
    """Log ratios of adjacent reference runs, each run used once, first and second in turn.

    Runs 0 1 2 3 give log(0/1) and log(3/2): ABBA, with both arms the reference.
    """
    ratios = []
    for pair in range(len(step_times_s) // 2):
        first, second = step_times_s[2 * pair], step_times_s[2 * pair + 1]
        ratios.append(log_ratio(first, second) if pair % 2 == 0 else log_ratio(second, first))
    return tuple(ratios)


def noise_of_runs(
    step_times_s: Sequence[float],
    within_log_sds: Sequence[float] = (),
    *,
    aa: Sequence[float] | None = None,
) -> Noise:
    """The noise shown by several runs of the reference, in the order in which they ran.

    The variance of a pair is twice that of a run; a drift between runs counts as noise, so this
    errs upwards for adjacent runs. Raises ValueError for fewer than two runs. `aa` defaults to
    `aa_log_ratios(step_times_s)`.
    """
    count = len(step_times_s)
    if count < 2:
        raise ValueError(f"`step_times_s` must hold at least two runs, but got {count}")
    logs = [math.log(value) for value in step_times_s]
    mean = math.fsum(logs) / count
    run_sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (count - 1))
    ordered = sorted(within_log_sds)
    return Noise(
        within_log_sd=ordered[len(ordered) // 2] if ordered else 0.0,
        run_log_sd=run_sd,
        pair_log_sd=math.sqrt(2.0) * run_sd,
        runs=count,
        degrees=count - 1,
        aa=tuple(aa_log_ratios(step_times_s) if aa is None else aa),
    )
