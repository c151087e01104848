"""What a sketch is free of, what it tells, and that it says nothing where it cannot."""

import pytest
import torch

from infrarsi.witness.guest.digests import Digester
from infrarsi.witness.guest.sketches import sketch_totals
from infrarsi.witness.guest.values import Values


def sketch(*parts: torch.Tensor, mask: torch.Tensor | None = None) -> list[float] | None:
    values, digester = Values(), Digester()
    marks = {"x": [digester.marks(part, mask).tolist() for part in parts]}
    return sketch_totals(marks, values).get("x")


def close(left: list[float] | None, right: list[float] | None) -> bool:
    assert left is not None
    assert right is not None
    return max(abs(a - b) for a, b in zip(left, right, strict=True)) < 1e-9


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(12, 3, 5, 7, generator=torch.Generator().manual_seed(3))


def test_it_begins_with_the_rows_and_their_units_of_rounding(rows: torch.Tensor) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        found = sketch(rows.to(dtype))
        assert found is not None
        assert found[:2] == [12.0, 12.0 * torch.finfo(dtype).eps]
        assert len(found) == 11


def test_it_ignores_the_order_of_rows_and_minds_the_order_inside_them(rows: torch.Tensor) -> None:
    assert close(sketch(rows), sketch(rows.flip(0)))
    assert not close(sketch(rows), sketch(rows.flip(3)))


@pytest.mark.parametrize("parts", [2, 3, 12])
def test_sketches_of_micro_batches_add_up_to_that_of_the_batch(
    rows: torch.Tensor, parts: int
) -> None:
    assert close(sketch(*rows.chunk(parts)), sketch(rows))


def test_a_sketch_in_chunks_is_the_sketch() -> None:
    rows = torch.randn(40, 60000, generator=torch.Generator().manual_seed(3))
    assert close(sketch(rows), sketch(*rows.split(3)))


def test_every_row_counts_alike_whatever_its_scale(rows: torch.Tensor) -> None:
    rows[0] *= 1e-6
    again = rows.clone()
    again[0] = rows[0].flip(2)
    ours, theirs = sketch(rows), sketch(again)
    assert ours is not None
    assert theirs is not None
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) > 0.1


def test_padding_under_a_mask_does_not_count() -> None:
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(rows)
    mask[:, 12:] = 0
    other = rows.clone()
    other[:, 12:] = 7.0
    assert sketch(rows, mask=mask) == sketch(other, mask=mask)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).view(3, 4),
        torch.tensor([[1.0, float("inf")], [1.0, 2.0]]),
        torch.tensor([[1.0, float("nan")]]),
        torch.ones(2, 2, dtype=torch.complex64),
    ],
    ids=["integers", "infinite", "nan", "complex"],
)
def test_nothing_is_said_of_what_it_does_not_hold_for(tensor: torch.Tensor) -> None:
    assert sketch(tensor) is None


def test_an_input_that_came_in_several_dtypes_has_a_sketch_only_if_all_float(
    rows: torch.Tensor,
) -> None:
    assert sketch(rows, rows.long()) is None
    assert sketch(rows, rows.half()) is not None


def test_rows_of_zeros_are_rows() -> None:
    found = sketch(torch.zeros(4, 6))
    assert found is not None
    assert found[0] == 4.0
