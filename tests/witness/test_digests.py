"""Order-freedom and additivity of digests, and what samples and looks are."""

import pytest
import torch

from infrarsi.witness.guest.digests import Digester, add, sample, sampled
from infrarsi.witness.guest.looks import close_looks
from infrarsi.witness.guest.values import MASK, Values

KEY = bytes(range(16))


def digest(tensor: torch.Tensor, mask: torch.Tensor | None = None) -> list[int]:
    sums = Digester().digest(tensor, mask)
    return [value & MASK for value in sums.tolist()]


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randint(0, 5000, (12, 33), generator=torch.Generator().manual_seed(3))


def test_digest_ignores_the_order_of_rows(rows: torch.Tensor) -> None:
    assert digest(rows) == digest(rows.flip(0))


@pytest.mark.parametrize("parts", [2, 3, 4, 12])
def test_digests_of_micro_batches_add_up_to_that_of_the_batch(
    rows: torch.Tensor, parts: int
) -> None:
    total = [0, 0]
    for part in rows.chunk(parts):
        total = add(total, digest(part))
    assert total == digest(rows)


def test_a_repeated_batch_has_another_digest(rows: torch.Tensor) -> None:
    assert add(digest(rows[:6]), digest(rows[:6])) != digest(rows)


def test_the_row_sum_minds_the_order_inside_a_row_and_the_element_sum_does_not(
    rows: torch.Tensor,
) -> None:
    one, other = digest(rows), digest(rows.flip(1))
    assert one[0] != other[0]
    assert one[1] == other[1]


def test_one_changed_element_changes_both_sums(rows: torch.Tensor) -> None:
    changed = rows.clone()
    changed[7, 11] += 1
    assert all(a != b for a, b in zip(digest(rows), digest(changed), strict=True))


def test_integers_are_hashed_by_value_whatever_their_width(rows: torch.Tensor) -> None:
    assert digest(rows) == digest(rows.to(torch.int32))


def test_floats_are_hashed_by_their_bits() -> None:
    x = torch.ones(4, 4)
    moved = torch.nextafter(x, torch.tensor(2.0))
    assert digest(x) != digest(moved)


def test_padding_under_a_mask_does_not_count(rows: torch.Tensor) -> None:
    short = rows[:, :20]
    mask = torch.zeros_like(rows)
    mask[:, :20] = 1
    assert digest(rows, mask) == digest(short, torch.ones_like(short))


def test_a_digest_in_chunks_is_the_digest(rows: torch.Tensor) -> None:
    big = rows.repeat(6000, 1)  # 72 000 rows of 33: more than one chunk
    total = [0, 0]
    for part in big.split(12):
        total = add(total, digest(part))
    assert digest(big) == total


def test_samples_come_from_sixteen_parameters_at_most() -> None:
    parameters = [torch.full((3, 5), float(i)) for i in range(40)]
    values = torch.cat(sample(sampled(parameters)))
    assert len(values) == 32
    assert values[0] == 0
    assert len(set(values.tolist())) == 16


@pytest.mark.parametrize("steps", [4, 8, 16, 40, 400])
def test_a_timed_run_looks_closely_at_the_first_two_steps_and_some_but_not_all(steps: int) -> None:
    look = close_looks(KEY, "timed", steps)
    chosen = [index for index in range(steps) if look(index)]
    assert chosen[:2] == [0, 1]
    assert 3 <= len(chosen) < steps


def test_the_choice_of_close_looks_depends_on_the_key() -> None:
    choices = {
        tuple(i for i in range(40) if close_looks(bytes([k]) * 16, "timed", 40)(i))
        for k in range(8)
    }
    assert len(choices) == 8


def test_an_audit_looks_closely_at_every_step() -> None:
    look = close_looks(KEY, "audit", 40)
    assert all(look(index) for index in range(60))


def test_a_value_on_the_cpu_is_read_at_once() -> None:
    values = Values()
    assert values.read(values.keep(torch.tensor(0.5))) == [0.5]
