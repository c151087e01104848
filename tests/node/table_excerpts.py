"""Logs in columns, event logs, and labels that other logs do not have; as in log_excerpts.py."""

from log_excerpts import GIB, LogExcerpt, lines

COLUMNS = {"loss": 2.5, "grad_norm": 1.5, "learning_rate": 3e-4, "tokens_per_s": 9000}


def columns(head: str, row: str, rows: range = range(1, 6)) -> str:
    return head + "\n" + "".join(row.format(i=i, s=10 * i) + "\n" for i in rows)


TABLES = (
    LogExcerpt(
        "columns by commas",
        columns("step,loss,grad_norm,lr,tok_per_sec", "{s},2.{i},1.{i},0.0003,9000"),
        COLUMNS,
    ),
    LogExcerpt(
        "columns by tabs",
        columns("Iter\tLoss\tgrad_norm\tLR\ttokens/sec", "{s}\t2.{i}\t1.{i}\t3e-4\t9000"),
        COLUMNS,
    ),
    LogExcerpt(
        "columns of a text table, with a rule under the names",
        columns(
            "| Step | Training Loss | Validation Loss |\n|------|------|-------|",
            "| {s} | 2.{i} | No log |",
        ),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "columns of a box",
        columns(
            "\u2502 step \u2502 loss \u2502 step_ms \u2502",
            "\u2502 {s} \u2502 2.{i} \u2502 20{i}.0 \u2502",
        ),
        {"loss": 2.5, "step_time_s": 0.2035},
    ),
    LogExcerpt(
        "aligned columns with other lines between them",
        columns(
            "  step     loss    grad_norm", "    {s}    2.{i}     1.{i}\nsaved 12 files to out"
        ),
        {"loss": 2.5, "grad_norm": 1.5},
    ),
    LogExcerpt(
        "columns of two ranks",
        "[rank0]:step,loss\n[rank1]:step,acc\n"
        + lines(lambda i: f"[rank0]:{i},2.{i}\n[rank1]:{i},0.7{i}"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "a line of names and rows of another width",
        columns("step, loss", "{s}, 2.{i}, 3.0"),
        {},
    ),
    LogExcerpt(
        "words with commas are no names of columns",
        "epoch done, saved\n" + lines(lambda i: f"step {i} loss 2.{i}"),
        {"loss": 2.5},
    ),
)

FIELDS = (
    LogExcerpt(
        "events with a key and a value",
        lines(
            lambda i: (
                f':::LOG {{"ns": "", "key": "train_loss", "value": 2.{i}, "metadata": '
                f'{{"step": {i}}}}}'
            )
        ),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "a group's number in a label",
        lines(lambda i: f"step {i}: optim/LR (group 0)=0.000{i} optim/total grad norm=0.{i}"),
        {"learning_rate": 5e-4, "grad_norm": 0.5},
    ),
    LogExcerpt(
        "the cross entropy beside a z loss",
        lines(lambda i: f"step={i} train/CE loss=2.{i} train/Z loss=0.0{i}"),
        {"loss": 2.5},
    ),
    LogExcerpt(
        "seconds, and rates of a device",
        lines(
            lambda i: (
                f"done step: {i}, seconds: 1.{i}, TFLOP/s/device: 130.{i}, "
                f"Tokens/s/device: 800{i}, loss: 2.{i}"
            )
        ),
        {"step_time_s": 1.35, "tflops": 130.35, "tokens_per_s": 8003.5, "loss": 2.5},
    ),
    LogExcerpt(
        "a time in brackets as a cell",
        lines(lambda i: f"step {i}/9 | train loss 2.{i} | lr 1e-04 | (7{i}.5 ms | 5500{i} tok/s)"),
        {"step_time_s": 0.074, "loss": 2.5, "learning_rate": 1e-4, "tokens_per_s": 55003.5},
    ),
    LogExcerpt(
        "a time without a unit beside stamps of milliseconds",
        lines(
            lambda i: (
                f"2026-03-02 11:00:0{i},{100 + i} - it [{i}/99] iter_time: 1.00{i}(1.2) loss: 2.{i}"
            )
        ),
        {"step_time_s": 1.0035, "loss": 2.5},
    ),
    LogExcerpt(
        "a rounded rate that the stamps deny",
        lines(
            lambda i: (
                f"2026-03-02 11:0{i}:00 | INFO | epoch 001: {100 * i} / 900 loss=2.{i}, "
                f"ups=0.04, num_updates={100 * i}, gnorm=1.{i}"
            )
        ),
        {"step_time_s": None, "loss": 2.5, "grad_norm": 1.5},
    ),
    LogExcerpt(
        "short labels of a robot's training",
        lines(lambda i: f"INFO step:{i} loss:2.{i} grdn:0.{i} mem:4{i}.0GiB"),
        {"loss": 2.5, "grad_norm": 0.5, "memory_bytes": 45 * GIB},
    ),
    LogExcerpt(
        "as many iterations as steps",
        lines(lambda i: f"iter {i} step {i} | loss 2.{i} | iter time: 35{i}.0 ms"),
        {"loss": 2.5, "step_time_s": 0.3535},
    ),
    LogExcerpt(
        "numbered optimizers",
        lines(
            lambda i: (
                f"[host] INFO: 1epoch:train:{100 * i - 99}-{100 * i}batch: iter_time=1.2e-04, "
                f"loss=9{i}.25, grad_norm=30.{i}, loss_scale=1.0, optim0_lr0=1.2e-05, "
                f"train_time=0.6{i}"
            )
        ),
        {"loss": 95.25, "grad_norm": 30.5, "learning_rate": 1.2e-5, "step_time_s": None},
    ),
    LogExcerpt(
        "a section of seconds",
        lines(
            lambda i: (
                f"(Runner pid=7) step:{i} - actor/loss:0.0{i} - actor/grad_norm:0.2{i} - "
                f"perf/time_per_step:8{i}.5 - timing_s/gen:30.1 - timing_s/step:8{i}.0"
            )
        ),
        {"loss": 0.05, "grad_norm": 0.25, "step_time_s": 83.5},
    ),
)
