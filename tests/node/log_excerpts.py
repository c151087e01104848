"""What jobs of many stacks print, with the figures that must be read from it.

Written in the manner of the real loggers for this table. `figures` is all that may be found: a
number is the value in the metric's unit, None a figure that is there and must not be given, because
the log leaves its unit or its meaning open.
"""

from collections.abc import Callable
from dataclasses import dataclass

GIB, MIB = 2.0**30, 2.0**20


@dataclass(frozen=True)
class LogExcerpt:
    """One log, the figures in it, and the lines at which it began anew."""

    name: str
    text: str
    figures: dict[str, float | None]
    restarts: tuple[int, ...] = ()


def lines(line: Callable[[int], str], steps: range = range(1, 6)) -> str:
    """One line for each step."""
    return "".join(line(i) + "\n" for i in steps)


def bar(count: int, total: int, rate: str, what: str = "", extra: str = "") -> str:
    """One state of a progress bar in tqdm's manner."""
    head = f"{what}: " if what else ""
    share = round(100 * count / total)
    return f"\r{head}{share:3d}%|##        | {count}/{total} [00:{count:02d}<00:30,  {rate}{extra}]"


def bars(total: int, rate: str, what: str = "", extra: str = "") -> str:
    """Some states of a bar."""
    return "".join(bar(i, total, rate, what, extra) for i in range(1, 6))


def megatron(i: int, ms: float = 210.0, tag: str = "") -> str:
    return (
        f"{tag} [2026-03-02 11:00:{i:02d}] iteration {10 * i:8d}/     500 | consumed samples: "
        f"{640 * i:12d} | elapsed time per iteration (ms): {ms + i:.1f} | throughput per GPU "
        f"(TFLOP/s/GPU): {400 + i}.5 | learning rate: 1.0{i}0000E-04 | global batch size:    64 | "
        f"lm loss: {11 - i}.5E+00 | load_balancing_loss: 1.1E+00 | loss scale: 1.0 | grad norm: "
        f"2.{i} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def titan(i: int) -> str:
    return (
        f"[titan] 2026-03-02 11:00:{10 * i:02d},100 - root - INFO - \x1b[31mstep: {i:2d}  "
        f"\x1b[32mloss: {9 - i}.1250  \x1b[38;2;180;60;0mgrad_norm:  0.{i}5  \x1b[34mmemory: "
        f"60.5{i}GiB(76.{i}0%)  \x1b[36mtps: 7,{i}00  \x1b[35mtflops: 380.{i}0  \x1b[33mmfu: "
        f"38.{i}0%\x1b[39m"
    )


STACKS = (
    LogExcerpt(
        "megatron",
        lines(megatron) + "[Rank 0] (after 10 iterations) memory (MB) | allocated: 30000.0 | max "
        "allocated: 40000.0 | reserved: 41000.0 | max reserved: 42000.0\n",
        {
            "step_time_s": 0.2135,
            "loss": 6.5,
            "grad_norm": 2.5,
            "learning_rate": 1.05e-4,
            "tflops": 404.0,
            "memory_bytes": 42000 * MIB,
        },
    ),
    LogExcerpt(
        "torchtitan, in colours",
        lines(titan),
        {
            "loss": 4.125,
            "grad_norm": 0.55,
            "memory_bytes": 60.55 * GIB,
            "tokens_per_s": 7350,
            "tflops": 380.35,
            "mfu": 0.3835,
        },
    ),
    LogExcerpt(
        "trainer: a dict of texts under a bar",
        "".join(
            bar(i, 40, "1.25it/s")
            + f"\r                    \r{{'loss': '{4 - i / 2}', 'grad_norm': '1.{i}', "
            f"'learning_rate': '4.{i}e-05', 'epoch': '0.{i}'}}\n"
            for i in range(1, 5)
        )
        + "{'train_runtime': '31.2', 'train_samples_per_second': '10.25', "
        "'train_steps_per_second': '1.28', 'train_loss': '2.9', 'epoch': '0.4'}\n",
        {"loss": 2.0, "grad_norm": 1.4, "learning_rate": 4.4e-5, "step_time_s": 0.8},
    ),
    LogExcerpt(
        "trainer: the bar of an evaluation inside",
        bars(40, "2.00it/s")
        + "\n{'loss': 3.25, 'grad_norm': 1.5, 'learning_rate': 4e-05, 'epoch': 0.1}\n"
        + bars(8, "9.00it/s")
        + "\n{'eval_loss': 3.5, 'eval_runtime': 0.9, 'eval_samples_per_second': 71.0, "
        "'eval_steps_per_second': 8.9, 'epoch': 0.1}\n" + bar(6, 40, "2.00it/s"),
        {"loss": 3.25, "grad_norm": 1.5, "learning_rate": 4e-5, "step_time_s": 0.5},
    ),
    LogExcerpt(
        "trl",
        lines(
            lambda i: (
                f"{{'loss': 1.{i}, 'grad_norm': 0.{i}, 'learning_rate': 2e-05, 'entropy': "
                f"1.9, 'num_tokens': {4096 * i}.0, 'mean_token_accuracy': 0.6, 'epoch': 0.0{i}}}"
            )
        ),
        {"loss": 1.5, "grad_norm": 0.5, "learning_rate": 2e-5},
    ),
    LogExcerpt(
        "deepspeed: steps_per_print and the breakdown",
        lines(
            lambda i: (
                f"[2026-03-02 11:00:{10 * i:02d},001] [INFO] [logging.py:128:log_dist] "
                f"[Rank 0] step={10 * i}, skipped=0, lr=[0.0002], mom=[(0.9, 0.999)]\n"
                f"[2026-03-02 11:00:{10 * i:02d},002] [INFO] [timer.py:260:stop] "
                f"epoch=0/micro_step={20 * i}/global_step={10 * i}, RunningAvgSamplesPerSec=31.{i},"
                f" CurrSamplesPerSec=32.{i}, MemAllocated=1.5GB, MaxMemAllocated=3.25GB\n"
                f"[2026-03-02 11:00:{10 * i:02d},003] [INFO] [logging.py:128:log_dist] [Rank 0] "
                f"time (ms) | fwd: 91.20 | bwd: 180.11 | step: 45.00"
            )
        ),
        {"learning_rate": 2e-4, "samples_per_s": 32.35, "memory_bytes": 3.25 * GIB},
    ),
    LogExcerpt(
        "deepspeed: the pipeline's own line",
        lines(
            lambda i: f"steps: {10 * i} loss: 3.{i}000 iter time (s): 0.51{i} samples/sec: 125.{i}"
        ),
        {"loss": 3.5, "step_time_s": 0.5135, "samples_per_s": 125.35},
    ),
    LogExcerpt(
        "deepspeed: memory in GB that are GiB",
        "[2026-03-02 11:00:00,001] [INFO] [utils.py:782:see_memory_usage] MA 2.5 GB         Max_MA "
        "4.5 GB         CA 5.0 GB         Max_CA 5 GB\n",
        {"memory_bytes": 5 * GIB},
    ),
    LogExcerpt(
        "lightning: a bar that carries the numbers",
        bars(50, "4.00it/s", "Epoch 0", ", v_num=3, train_loss_step=2.310"),
        {"loss": 2.31, "step_time_s": 0.25},
    ),
    LogExcerpt(
        "nemo",
        lines(
            lambda i: (
                f"Training epoch 0, iteration {i}/99 | lr: 1.2e-05 | global_batch_size: 32 | "
                f"global_step: {i} | max_memory_reserved: 42949672960 | "
                f"reduced_train_loss: 9.{i} | train_step_timing in s: 1.2{i} | "
                f"consumed_samples: {32 * i}"
            )
        ),
        {"learning_rate": 1.2e-5, "memory_bytes": None, "loss": 9.5, "step_time_s": 1.235},
    ),
    LogExcerpt(
        "nanoGPT",
        "step 0: train loss 10.9100, val loss 10.9205\n"
        + lines(lambda i: f"iter {10 * i}: loss {9 - i}.2500, time 54.{i}0ms, mfu 12.5{i}%"),
        {"loss": 4.25, "step_time_s": 0.05435, "mfu": 0.12535},
    ),
    LogExcerpt(
        "a loop with pipes",
        lines(
            lambda i: (
                f"step {i:5d} | loss: 6.{i}12345 | lr 6.0000e-04 | norm: 0.{i}345 | dt: "
                f"330.{i}0ms | tok/sec: 158800.{i}"
            )
        ),
        {
            "loss": 6.512345,
            "learning_rate": 6e-4,
            "grad_norm": 0.5345,
            "step_time_s": 0.33035,
            "tokens_per_s": 158800.35,
        },
    ),
    LogExcerpt(
        "a loop in C",
        lines(
            lambda i: (
                f"step {i:4d}/18865 | loss 9.75{i} (+1.20z)| norm 2.1{i} (-0.50z)| lr "
                f"1.05e-05 | 123.4{i} ms | 45.6% bf16 MFU | 850,00{i} tok/s"
            )
        ),
        {
            "loss": 9.755,
            "grad_norm": 2.15,
            "learning_rate": 1.05e-5,
            "step_time_s": 0.123435,
            "mfu": 0.456,
            "tokens_per_s": 850003.5,
        },
    ),
    LogExcerpt(
        "litgpt",
        lines(
            lambda i: (
                f"Epoch 1 | iter {4 * i} step {i} | loss train: 3.{i}12, val: n/a | iter "
                f"time: 410.2{i} ms (step) remaining time: 0:10:00"
            )
        ),
        {"loss": 3.512, "step_time_s": None},
    ),
    LogExcerpt(
        "blocks under a counter",
        lines(
            lambda i: (
                f"[batch={i}/10]:\n\t Train time/batch: {i}\n\t Train "
                f"throughput/batches_per_sec: 2.500\n\t Train loss/train/total: 4.{i}"
            )
        ),
        {"loss": 4.5, "step_time_s": 0.4},
    ),
    LogExcerpt(
        "blocks with devices in their names",
        lines(
            lambda i: (
                f"[step={10 * i}/1000,epoch=0]\n    train/CrossEntropyLoss=5.{i}\n    "
                f"throughput/device/tokens_per_second=12,3{i}0\n    optim/total_grad_norm=0.7{i}"
            )
        ),
        {"loss": 5.5, "tokens_per_s": 12335, "grad_norm": 0.75},
    ),
    LogExcerpt(
        "a meter that prints medians and means, seconds and MiB without units",
        lines(
            lambda i: (
                f"Epoch: [0]  [  {20 * i}/1250]  eta: 0:12:3{i}  lr: 0.000100  loss: 6.9{i}1 "
                f"(7.0120)  time: 0.25{i}0  data: 0.0012  max mem: 12345"
            )
        ),
        {
            "loss": 6.951,
            "learning_rate": 1e-4,
            "step_time_s": 0.2535,
            "memory_bytes": 12345 * MIB,
        },
    ),
    LogExcerpt(
        "an iteration runner",
        lines(
            lambda i: (
                f"2026-03-02 11:0{i}:00,123 - mm - INFO - Iter [{50 * i}/80000]\tlr: "
                f"1.000e-02, eta: 5:20:11, time: 0.24{i}, data_time: 0.005, memory: 4567, "
                f"loss: 1.{i}"
            )
        ),
        {"learning_rate": 0.01, "step_time_s": 0.2435, "memory_bytes": 4567 * MIB, "loss": 1.5},
    ),
    LogExcerpt(
        "a detector with parts of a loss",
        lines(
            lambda i: (
                f" eta: 0:12:3{i}  iter: {20 * i}  total_loss: 3.{i}  loss_cls: 1.2  "
                f"loss_box_reg: 0.5  time: 0.23{i}0  last_time: 0.2200  data_time: 0.0123  "
                "lr: 0.0002  max_mem: 2345M"
            )
        ),
        {"loss": 3.5, "step_time_s": 0.2335, "learning_rate": 2e-4, "memory_bytes": 2345 * MIB},
    ),
    LogExcerpt(
        "fairseq's JSON",
        lines(
            lambda i: (
                f'2026-03-02 11:0{i}:00 | INFO | train_inner | {{"epoch": 1, "update": 0.{i},'
                f' "loss": "10.{i}", "wps": "11929.{i}", "ups": "1.25", '
                f'"num_updates": "{100 * i}", "lr": "1.2e-05", "gnorm": "2.{i}", '
                f'"train_wall": "80", "wall": "9{i}"}}'
            )
        ),
        {
            "loss": 10.5,
            "tokens_per_s": 11929.35,
            "step_time_s": 0.8,
            "learning_rate": 1.2e-5,
            "grad_norm": 2.5,
        },
    ),
    LogExcerpt(
        "nanotron",
        lines(
            lambda i: (
                f"03/02/2026 11:00:0{i} [INFO|DP=0|PP=0|TP=0|node-1]: iteration: {i} / 100 | "
                f"elapsed_time_per_iteration_ms: 23{i} | tokens_per_sec: 43.9K | "
                f"tokens_per_sec_per_gpu: 5.49K | global_batch_size: 512 | lm_loss: 10.{i} | "
                f"lr: 0.0003 | "
                f"model_tflops_per_gpu: 55.{i} | hardware_tflops_per_gpu: 60.1 | grad_norm: 20.{i}"
            )
        ),
        {
            "step_time_s": 0.2335,
            "tokens_per_s": 43900,
            "loss": 10.5,
            "learning_rate": 3e-4,
            "tflops": 55.35,
            "grad_norm": 20.5,
        },
    ),
)

UNITS = (
    LogExcerpt(
        "a bar whose name holds the numbers",
        "".join(
            f"\r1|{i}|Loss: 2.{i}: {10 * i}%|#  | {i}/10 [00:1{i}<00:10,  1.50s/it]"
            for i in range(1, 6)
        ),
        {"loss": 2.5, "step_time_s": 1.5},
    ),
    LogExcerpt(
        "sizes in GiB in brackets, the peak that torch took",
        lines(
            lambda i: (
                f"{{'loss': 1.{i}, 'memory/max_active (GiB)': 20.1, 'memory/max_allocated (GiB)': "
                f"21.{i}, 'memory/device_reserved (GiB)': 25.0, 'epoch': 0.0{i}}}"
            )
        ),
        {"loss": 1.5, "memory_bytes": 21.5 * GIB},
    ),
    LogExcerpt(
        "seconds and a rate without a unit, values and their means",
        lines(
            lambda i: (
                f"Train: 0 [{50 * i:4d}/1251 (  4%)]  Loss: 6.9{i} (6.95)  Time: 0.51{i}s,  "
                f"250.00/s  (0.600s,  213.33/s)  LR: 1.000e-04  Data: 0.010 (0.020)"
            )
        ),
        {"loss": 6.95, "step_time_s": 0.5135, "learning_rate": 1e-4},
    ),
    LogExcerpt(
        "seconds behind the number",
        lines(lambda i: f"step {i} loss 2.{i} took 0.2{i} s"),
        {"loss": 2.5, "step_time_s": 0.235},
    ),
    LogExcerpt(
        "seconds in the label",
        lines(lambda i: f"step={i} loss=2.{i} step_time_s=0.2{i}"),
        {"loss": 2.5, "step_time_s": 0.235},
    ),
    LogExcerpt(
        "milliseconds in the label",
        lines(lambda i: f"step={i} loss=2.{i} iter_time_ms=21{i}"),
        {"loss": 2.5, "step_time_s": 0.2135},
    ),
    LogExcerpt(
        "seconds in brackets",
        lines(lambda i: f"step {i} | loss 2.{i} | step time (s): 0.2{i}"),
        {"loss": 2.5, "step_time_s": 0.235},
    ),
    LogExcerpt(
        "iterations in a second",
        lines(lambda i: f"step {i} loss 2.{i} 4.00 it/s"),
        {"loss": 2.5, "step_time_s": 0.25},
    ),
    LogExcerpt(
        "seconds of an iteration",
        lines(lambda i: f"step {i} loss 2.{i} 1.2{i}s/it"),
        {"loss": 2.5, "step_time_s": 1.235},
    ),
    LogExcerpt(
        "a bar that changes between it/s and s/it",
        bar(1, 9, "1.25s/it")
        + bar(2, 9, "1.25s/it")
        + bar(3, 9, "0.80it/s")
        + bar(4, 9, "0.8it/s"),
        {"step_time_s": 1.25},
    ),
    LogExcerpt(
        "milliseconds of a step in a bar of keras",
        lines(
            lambda i: f"{i}/36 \u2501\u2501\u2501\u2501\u2501\u2501 1{i}s 200ms/step - loss: 3.{i}"
        ),
        {"loss": 3.5, "step_time_s": 0.2},
    ),
    LogExcerpt(
        "a time without a unit",
        lines(lambda i: f"step {i} loss 2.{i} step_time 0.2{i}"),
        {"loss": 2.5, "step_time_s": None},
    ),
    LogExcerpt(
        "a time without a unit, under time stamps",
        lines(
            lambda i: (
                f"2026-03-02 11:00:{2 * i:02d},500 INFO step {10 * i} loss 2.{i} step_time 20{i}"
            )
        ),
        {"loss": 2.5, "step_time_s": 0.2035},
    ),
    LogExcerpt(
        "a time without a unit beside a rate of steps",
        lines(lambda i: f"step {i} loss 2.{i} dt 0.25 steps/s: 4.0"),
        {"loss": 2.5, "step_time_s": 0.25},
    ),
    LogExcerpt(
        "GB may be either",
        lines(lambda i: f"step {i} loss 2.{i} max_mem 3.5 GB"),
        {"loss": 2.5, "memory_bytes": None},
    ),
    LogExcerpt(
        "MB may be either",
        lines(lambda i: f"step {i} | loss 2.{i} | peak memory: 41250MB"),
        {"loss": 2.5, "memory_bytes": None},
    ),
    LogExcerpt(
        "GiB are known",
        lines(lambda i: f"step {i} | loss 2.{i} | peak_mem 3.{i}GiB"),
        {"loss": 2.5, "memory_bytes": 3.5 * GIB},
    ),
    LogExcerpt(
        "thousands of tokens",
        lines(lambda i: f"step {i} loss 2.{i} 12.{i}k tokens/s"),
        {"loss": 2.5, "tokens_per_s": 12350},
    ),
    LogExcerpt(
        "a utilization as a share and one in per cent without a sign",
        lines(lambda i: f"step {i} loss 2.{i} mfu 41.{i}"),
        {"loss": 2.5, "mfu": 0.4135},
    ),
    LogExcerpt(
        "a utilization as a share",
        lines(lambda i: f"step {i} loss 2.{i} mfu=0.41{i}"),
        {"loss": 2.5, "mfu": 0.4135},
    ),
    LogExcerpt(
        "a utilization that may be a share or per cent",
        lines(lambda i: f"step {i} loss 2.{i} mfu 0.01{i}"),
        {"loss": 2.5, "mfu": None},
    ),
    LogExcerpt(
        "a utilization that is not measured yet",
        lines(lambda i: f"iter {i}: loss 2.{i}000, time 54.{i}0ms, mfu -100.00%"),
        {"loss": 2.5, "step_time_s": 0.05435, "mfu": None},
    ),
)

WINDOWS = (
    LogExcerpt(
        "every tenth step: of one step or of ten is not said",
        lines(lambda i: f"step {10 * i} loss 2.{i} time 2.1{i}s"),
        {"loss": 2.5, "step_time_s": None},
    ),
    LogExcerpt(
        "every tenth step: of ten by the stamps",
        lines(lambda i: f"2026-03-02 11:00:{2 * i:02d} step {10 * i} loss 2.{i} time 2.0{i}s"),
        {"loss": 2.5, "step_time_s": 0.2035},
    ),
    LogExcerpt(
        "every tenth step: of one by the stamps",
        lines(lambda i: f"2026-03-02 11:00:{2 * i:02d} step {10 * i} loss 2.{i} time 0.20{i}s"),
        {"loss": 2.5, "step_time_s": 0.2035},
    ),
    LogExcerpt(
        "a clock since the start",
        lines(lambda i: f"step {10 * i} loss 2.{i} elapsed {2.5 * i + 30:.1f}s"),
        {"loss": 2.5, "step_time_s": 0.25},
    ),
    LogExcerpt(
        "a mean since the start beside the loss of the step",
        lines(lambda i: f"step {i} loss 2.{i} avg_loss 3.{i}"),
        {"loss": 2.5},
    ),
)

TRAPS = (
    LogExcerpt(
        "two processes without a tag",
        lines(lambda i: f"step {i} loss 2.{i} dt 0.2{i}s\nstep {i} loss 3.{i} dt 0.3{i}s"),
        {"loss": None, "step_time_s": None},
    ),
    LogExcerpt(
        "lines that came twice",
        lines(lambda i: f"step {i} loss 2.{i} dt 0.2{i}s\nstep {i} loss 2.{i} dt 0.2{i}s"),
        {"loss": 2.5, "step_time_s": 0.23},
    ),
    LogExcerpt(
        "epochs that are rounded to the same",
        lines(lambda i: f"{{'loss': 2.{i}, 'learning_rate': 1e-4, 'epoch': 0.0}}"),
        {"loss": 2.5, "learning_rate": 1e-4},
    ),
    LogExcerpt(
        "a number that belongs to a name",
        lines(lambda i: f"step:{i} - train/loss:2.{i} - train/lr(1e-3):0.01"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "a stamp in milliseconds is no time of a step",
        lines(lambda i: f'{{"time_ms": 170000000{i}, "key": "loss", "step_num": {i}}}'),
        {"step_time_s": None},
    ),
    LogExcerpt(
        "two losses with the same word",
        lines(lambda i: f"step {i} loss_a 2.{i} loss_b 3.{i}"),
        {"loss": None},
    ),
    LogExcerpt(
        "losses that are not trained on",
        lines(lambda i: f"step {i} loss 2.{i} eval_loss 9.9 loss_scale 65536 aux_loss 0.01"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "times that are not the step's",
        lines(lambda i: f"step {i} loss 2.{i} data_time 0.01s eta 120 s save_time 3.1s fwd 9ms"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "norms that are not the gradient's",
        lines(lambda i: f"step {i} loss 2.{i} param_norm 120.5 max_grad_norm 1.0 clip 1.0"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "settings that look like figures",
        "batch_size: 32\nlearning rate warmup steps: 100\nloss function: mse2\nmax_lr=0.001\n"
        "timeout: 600 s\ntotal memory: 80 GiB\ncpu memory: 12 GiB\n",
        {},
    ),
    LogExcerpt(
        "numbers in names, dates and versions",
        "2026-03-02 11:00:01 torch 2.13.0+cu130 node-7 loss_v2.py step_12.pt time12 [a3f9]\n",
        {},
    ),
    LogExcerpt(
        "bars of other work",
        bars(4, "1.30s/it", "Loading checkpoint shards")
        + bars(1000, "9000.00 examples/s", "Map")
        + bars(20, "3.00it/s", "Evaluating"),
        {},
    ),
    LogExcerpt(
        "two bars without a name",
        bars(3, "300.00s/it") + bars(100, "4.00it/s"),
        {"step_time_s": None},
    ),
    LogExcerpt(
        "a loss that is no number",
        lines(lambda i: f"step {i} loss {'nan' if i > 3 else 2.5} grad_norm inf lr 1e-4"),
        {"loss": float("nan"), "grad_norm": float("inf"), "learning_rate": 1e-4},
    ),
    LogExcerpt(
        "a restart from a checkpoint",
        lines(lambda i: f"step {i} loss 2.{i} dt 0.50s", range(1, 9))
        + "resuming from step 4\n"
        + lines(lambda i: f"step {i} loss 1.{i} dt 0.2{i}s", range(4, 9)),
        {"loss": 1.8, "step_time_s": 0.265},
        restarts=(10,),
    ),
    LogExcerpt(
        "batches that every epoch counts anew",
        lines(
            lambda i: f"Epoch [{1 + i // 4}/3], Step [{1 + 100 * (i % 4)}/400], Loss: 1.{i}",
            range(12),
        )
        .replace("1.10", "1.05")
        .replace("1.11", "1.04"),
        {"loss": 1.04},
    ),
    LogExcerpt(
        "several ranks, their lines mixed",
        "".join(
            f"[rank{rank}]: step {i} loss {2 + rank}.{i} time 0.2{rank}s\n"
            for i in range(1, 6)
            for rank in (1, 0, 3, 2)
        ),
        {"loss": 2.5, "step_time_s": 0.2},
    ),
    LogExcerpt(
        "the last rank prints, under the launcher's tag",
        lines(lambda i: megatron(i, tag="[default7]:")),
        {
            "step_time_s": 0.2135,
            "loss": 6.5,
            "grad_norm": 2.5,
            "learning_rate": 1.05e-4,
            "tflops": 404.0,
        },
    ),
    LogExcerpt(
        "two processes in one line",
        "step 1 loss 2.5step 1 loss 2.6\n\nstep 2 loss 2.4\nstep 3 loss 2.3\n",
        {"loss": 2.3},
    ),
    LogExcerpt(
        "an epoch's time is no step's",
        lines(lambda i: f"epoch {i} loss 2.{i} epoch_time 61.{i}s total_time {61 * i}s"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "a rate of evaluation and of loading",
        lines(lambda i: f"step {i} loss 2.{i} eval_samples_per_second 800.0"),
        {"loss": 2.5},
    ),
    LogExcerpt("nothing", "starting\ndone\n", {}),
)

EXCERPTS = (*STACKS, *UNITS, *WINDOWS, *TRAPS)
