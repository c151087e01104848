"""Norms and projections against plain sums, and what the projection can tell apart."""

import pytest
import torch

from infrarsi.witness.guest.fingerprint import CHUNK, Patterns, Prints
from infrarsi.witness.guest.values import Values


def taken(*tensors, divide_by=None):
    values = Values()
    prints = Prints(enumerate(tensors), values, Patterns(), divide_by)
    found = prints.read(values)
    return [found[i] for i in range(len(tensors))]


def test_the_norm_is_that_of_all_elements_and_chunks() -> None:
    tensor = torch.randn(CHUNK + 17, generator=torch.Generator().manual_seed(0))
    ((norm, projection),) = taken(tensor)
    assert norm == pytest.approx(tensor.double().norm().item(), rel=1e-12)
    assert abs(projection) < 5 * norm


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.flip(0),
        lambda x: -x,
        lambda x: x.roll(1),
        lambda x: torch.cat((x[:8] * -1, x[8:])),
    ],
    ids=["flipped", "negated", "shifted", "partly negated"],
)
def test_changes_that_keep_the_norm_show_in_the_projection(change) -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    (one, other) = taken(x, change(x))
    assert one[0] == pytest.approx(other[0])
    assert abs(one[1] - other[1]) > 1e-3 * one[0]


def test_the_layout_in_memory_does_not_count() -> None:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    one, other = taken(x, x.to(memory_format=torch.channels_last))
    assert one == other


def test_what_is_divided_absent_sparse_or_complex() -> None:
    x = torch.tensor([3.0, 0.0, 4.0])
    values = taken(x, None, x.to_sparse(), torch.complex(x, x), divide_by=torch.tensor(2.0))
    assert values[0][0] == 2.5
    assert values[1] is None
    assert values[2] == values[0]
    assert values[3][0] == pytest.approx(2.5 * 2**0.5)


def test_integers_are_left_out_and_what_is_not_a_number_stays_that() -> None:
    values = Values()
    named = [("count", torch.tensor([1, 2])), ("bad", torch.tensor([1.0, float("nan")]))]
    found = Prints(named, values, Patterns()).read(values)
    assert set(found) == {"bad"}
    assert all(number != number for number in found["bad"])
