"""What jobs print in their many ways is read as numbers with a label and a step."""

import json
from pathlib import Path

import pytest

from infrarsi.node.printed import LEFT_OUT, printed_numbers

ONE_LINE = {
    "words": ("step 12/36 loss 3.41 time 210ms", 12, {"loss": 3.41, "time_s": 0.21}),
    "nanogpt": (
        "iter 100: loss 3.2163, time 54.20ms, mfu 12.55%",
        100,
        {"loss": 3.2163, "time_s": 0.0542, "mfu": 12.55},
    ),
    "brackets": (
        "Epoch [1/3], Step [12/100], Loss: 0.3051",
        12,
        {"epoch": 1, "loss": 0.3051},
    ),
    "hf dict": (
        "{'loss': '3.41', 'grad_norm': '1.2e-01', 'learning_rate': '5e-05', 'epoch': '0.25'}",
        0.25,
        {"loss": 3.41, "grad_norm": 0.12, "learning_rate": 5e-5},
    ),
    "json": (
        '{"step": 7, "train/loss": 2.5, "tokens_per_sec": 12345.6}',
        7,
        {"train/loss": 2.5, "tokens_per_sec": 12345.6},
    ),
    "key=value": (
        "2026-11-29 19:48:40,123 - INFO - global_step=40 loss=2.25 lr=1e-4 dt=0.31s",
        40,
        {"loss": 2.25, "lr": 1e-4, "dt_s": 0.31},
    ),
    "torchtitan": (
        "\x1b[31mstep: \x1b[32m 1  \x1b[33mloss: \x1b[34m 8.1376  \x1b[35mgrad_norm:  1.4321  "
        "\x1b[36mmemory:  1.15GiB(1.21%)  \x1b[34mtps: 25,381  \x1b[0mtflops: 1.23  mfu: 0.12%",
        1,
        {"loss": 8.1376, "grad_norm": 1.4321, "memory": 1.15, "tps": 25381, "tflops": 1.23},
    ),
    "megatron": (
        " iteration      100/  500000 | consumed samples:        12800 | elapsed time per "
        "iteration (ms): 210.3 | learning rate: 1.500E-04 | lm loss: 6.83E+00 | grad norm: 1.2 |",
        100,
        {
            "elapsed_time_per_iteration_s": 0.2103,
            "learning_rate": 1.5e-4,
            "lm_loss": 6.83,
            "consumed_samples": 12800,
        },
    ),
    "counter in the label": ("Training loss at step 12: 3.41", 12, {"training_loss": 3.41}),
    "rates": (
        "[rank0]: step 5 | loss 2.50 | 1.25k tok/s | 3.4 it/s",
        5,
        {"loss": 2.5, "tok/s": 1250, "it/s": 3.4},
    ),
    "bar": (
        " 33%|###   | 12/36 [00:10<00:20,  1.20it/s, loss=3.41]",
        12,
        {"bar/it/s": 1.2, "bar/loss": 3.41},
    ),
    "a unit that is a label": (
        "step 4/12 loss 4.16113 norm 0.4893 ms 45.3",
        4,
        {"loss": 4.16113, "norm": 0.4893, "ms": 45.3},
    ),
    "no counter": ("loss: 3.5 took 0.25 s", 1, {"loss": 3.5, "took_s": 0.25}),
}


def read(folder: Path, text: str | bytes) -> dict[str, list[list[float]]]:
    log = folder / "stdout.log"
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    return printed_numbers(log)


@pytest.mark.parametrize(("line", "step", "numbers"), ONE_LINE.values(), ids=ONE_LINE.keys())
def test_a_line_is_read(tmp_path, line, step, numbers):
    found = read(tmp_path, f"starting\n{line}\n")
    for label, value in numbers.items():
        assert label in found, found
        assert found[label] == [[step, pytest.approx(value), 2.0]], label


def test_the_steps_and_lines_of_a_label_are_kept_in_order(tmp_path):
    text = "".join(f"step {i} loss {5 - i}.5\nnothing here\n" for i in range(3))
    assert read(tmp_path, text)["loss"] == [[0, 5.5, 1], [1, 4.5, 3], [2, 3.5, 5]]


def test_the_states_of_a_progress_bar_are_told_apart_from_lines(tmp_path):
    bar = "".join(f"\r {i}/9 [00:0{i}<00:09, 1.0it/s, loss={i}.5]" for i in (1, 2, 3))
    found = read(tmp_path, f"step 1 loss 9.0\r\n{bar}\nstep 2 loss 8.0\n")
    assert [value for _, value, _ in found["bar/loss"]] == [1.5, 2.5, 3.5]
    assert found["loss"] == [[1, 9, 1], [2, 8, 3]]


def test_a_line_that_a_bar_made_room_for_is_a_line(tmp_path):
    bar = "\r 10%|#   | 1/10 [00:01<00:09,  1.0it/s]"
    found = read(tmp_path, f"{bar}\r          \r{{'loss': '3.5', 'epoch': '0.1'}}\n{bar}\n")
    assert found["loss"] == [[0.1, 3.5, 1]]


def test_a_line_without_end_and_a_broken_letter_are_read(tmp_path):
    assert read(tmp_path, b"\xff\xfestep 3 loss 1.25")["loss"] == [[3, 1.25, 1]]


def test_not_a_number_is_read_as_such(tmp_path):
    (point,) = read(tmp_path, "step 4 loss nan\n")["loss"]
    assert point[1] != point[1]


def test_dates_versions_and_names_are_no_numbers(tmp_path):
    text = "2026-11-29 10:00:01 torch 2.13.0+cpu node-7 a3f9 step_12.pt\n"
    assert read(tmp_path, text) == {}


def test_the_middle_that_was_left_out_is_said(tmp_path):
    found = read(
        tmp_path, "step 1 loss 2\n\n... 1234 bytes were left out here ...\nstep 9 loss 1\n"
    )
    assert found[LEFT_OUT] == [[0, 1234, 3]]


def test_what_is_kept_is_bounded(tmp_path):
    many = "".join(f"step {i} loss 1.5 a{i % 200}x=2\n" for i in range(3000))
    found = read(tmp_path, many + "x" * 100_000 + " step 1 loss 2\n")
    assert len(found["loss"]) == 512
    assert len(found) <= 64
    assert len(json.dumps(found)) < 400_000


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    assert printed_numbers(tmp_path / "none.log") == {}


def test_a_log_without_end_is_read_in_part_and_says_so(tmp_path):
    found = read(tmp_path, "worker 5 of 8 waits\n" * 51_000 + "step 1 loss 2\n")
    assert LEFT_OUT in found
