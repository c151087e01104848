"""Rounding passes and all else does not: real tensors, sketched by the guest's own code."""

from collections.abc import Callable

import pytest
import torch

from infrarsi.verify.sketches import MOST_ROWS, Inputs, apart, differing, fine, same_to_rounding
from infrarsi.witness.guest.digests import Digester
from infrarsi.witness.guest.sketches import sketch_totals
from infrarsi.witness.guest.values import MASK, Values

DIGESTER, VALUES = Digester(), Values()
SIZES = [(1, 256), (2, 48), (48, 3072), (512, 64)]


class Noising:
    """Noised pictures of `rows` rows, and what they are made of."""

    def __init__(self, rows: int, width: int) -> None:
        source = torch.Generator().manual_seed(7 * rows + width)
        self.images = torch.rand(rows, width, generator=source) * 2.0 - 1.0
        self.noise = torch.randn(rows, width, generator=source)
        t = torch.randint(0, 200, (rows,), generator=source)
        self.kept = torch.cumprod(1.0 - torch.linspace(1e-4, 0.04, 200), 0)[t][:, None]
        self.bytes = (self.images * 127.0 + 128.0).to(torch.uint8)

    def noised(self, noise: torch.Tensor | None = None) -> torch.Tensor:
        noise = self.noise if noise is None else noise
        return self.kept.sqrt() * self.images + (1.0 - self.kept).sqrt() * noise


def inputs(**tensors: torch.Tensor) -> Inputs:
    marks = {name: [DIGESTER.marks(t).tolist()] for name, t in tensors.items()}
    digests = {name: tuple(v & MASK for v in part[:2]) for name, (part,) in marks.items()}
    return Inputs(digests, sketch_totals(marks, VALUES))


def share(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    found = apart(inputs(x=ours).sketches["x"], inputs(x=theirs).sketches["x"])
    assert found is not None
    return found


HONEST: dict[str, Callable[[Noising], tuple[torch.Tensor, torch.Tensor]]] = {
    "in one pass": lambda j: (
        j.noised(),
        torch.addcmul(j.kept.sqrt() * j.images, (1.0 - j.kept).sqrt(), j.noise),
    ),
    "factored": lambda j: (
        j.noised(),
        j.kept.sqrt() * (j.images + ((1.0 - j.kept) / j.kept).sqrt() * j.noise),
    ),
    "in double precision": lambda j: (
        j.noised(),
        (
            j.kept.double().sqrt() * j.images.double()
            + (1.0 - j.kept.double()).sqrt() * j.noise.double()
        ).float(),
    ),
    "normalised by a product and a sum": lambda j: (
        (j.bytes.float() / 255.0 - 0.485) / 0.229,
        j.bytes.float() * (1.0 / (255.0 * 0.229)) - 0.485 / 0.229,
    ),
    "scaled by the inverse": lambda j: (
        (j.bytes.float() / 255.0 - 0.485) / 0.229,
        (j.bytes.float() * (1.0 / 255.0) - 0.485) / 0.229,
    ),
    "rows in another order": lambda j: (j.noised(), j.noised().flip(0)),
    "rounded to 16 bits after other rounding in 32": lambda j: (
        j.noised().bfloat16(),
        torch.addcmul(j.kept.sqrt() * j.images, (1.0 - j.kept).sqrt(), j.noise).bfloat16(),
    ),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("change", HONEST)
def test_another_order_of_operations_is_rounding(change: str, size: tuple[int, int]) -> None:
    ours, theirs = HONEST[change](Noising(*size))
    assert share(ours, theirs) < 0.2  # the largest seen is 0.03


def last_row(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:-1], row[None]])


def first_columns(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[1]) < x.shape[1] // 16


CHEATS: dict[str, Callable[[Noising], torch.Tensor]] = {
    "bf16": lambda j: j.noised().bfloat16().float(),
    "fp16": lambda j: j.noised().half().float(),
    "noise in bf16": lambda j: j.noised(j.noise.bfloat16().float()),
    "noise in fp16": lambda j: j.noised(j.noise.half().float()),
    "rescaled by a thousandth": lambda j: j.noised() * 1.001,
    "shifted by a thousandth": lambda j: j.noised() + 0.001,
    "another schedule by a thousandth": lambda j: (
        (j.kept * 0.999).sqrt() * j.images + (1.0 - j.kept * 0.999).sqrt() * j.noise
    ),
    "no noise in a sixteenth of the pixels": lambda j: torch.where(
        first_columns(j.images), j.kept.sqrt() * j.images, j.noised()
    ),
    "the same noise for two pixels": lambda j: j.noised(j.noise[:, ::2].repeat_interleave(2, 1)),
    "uniform noise": lambda j: j.noised(
        torch.rand(j.noise.shape, generator=torch.Generator().manual_seed(1)) * 3.46 - 1.73
    ),
    "noise of 8 bits": lambda j: j.noised((j.noise * 32.0).round() / 32.0),
    "mirrored": lambda j: -j.noised(),
    "columns swapped": lambda j: j.noised().flip(1),
}
OF_ROWS: dict[str, Callable[[Noising], torch.Tensor]] = {
    "one row twice": lambda j: last_row(j.noised(), j.noised()[0]),
    "noise of one row twice": lambda j: j.noised(last_row(j.noise, j.noise[0])),
    "noise of one row mirrored": lambda j: j.noised(last_row(j.noise, -j.noise[-1])),
    "half of the rows in fp16": lambda j: torch.cat(
        [j.noised()[::2], j.noised()[1::2].half().float()]
    ),
    "half of the rows again": lambda j: j.noised()[: len(j.images) // 2].repeat(2, 1),
    "one row left as it was": lambda j: last_row(j.noised(), j.images[-1]),
    "two rows mixed": lambda j: last_row(j.noised(), (j.noised()[-1] + j.noised()[0]) / 2.0),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("change", CHEATS)
def test_other_numbers_are_not(change: str, size: tuple[int, int]) -> None:
    job = Noising(*size)
    assert share(job.noised(), CHEATS[change](job)) > 3.0  # the least seen is 5


@pytest.mark.parametrize("size", SIZES[1:], ids=str)
@pytest.mark.parametrize("change", OF_ROWS)
def test_other_rows_are_not(change: str, size: tuple[int, int]) -> None:
    job = Noising(*size)
    assert share(job.noised(), OF_ROWS[change](job)) > 3.0


@pytest.mark.parametrize("size", SIZES[1:], ids=str)
def test_a_row_that_comes_twice_shows_in_16_bits_as_well(size: tuple[int, int]) -> None:
    x = Noising(*size).noised().bfloat16()
    assert share(x, last_row(x, x[0])) > 3.0


def test_16_bits_that_were_computed_in_another_order_are_not_told_from_a_lower_precision() -> None:
    job = Noising(32, 256)
    parts = [part.bfloat16() for part in (job.kept.sqrt() * job.images, (1 - job.kept).sqrt())]
    ours, theirs = parts[0] + parts[1] * job.noise.bfloat16(), job.noised().bfloat16()
    assert share(ours, theirs) > 1.0
    assert not fine(inputs(x=ours).sketches["x"])


def test_doubles_are_held_to_doubles() -> None:
    x = Noising(32, 256).noised().double() * 1.1
    assert share(x, x.float().double()) > 1e4
    assert share(x, x * (1.0 + 2.0**-52)) < 1.0


def test_numbers_of_another_dtype_are_other_numbers() -> None:
    x = Noising(32, 256).noised().half()
    assert share(x.float(), x) == float("inf")
    assert share(x.float(), x.double()) == float("inf")


def test_more_rows_than_can_be_told_say_nothing() -> None:
    x = torch.randn(MOST_ROWS + 1, generator=torch.Generator().manual_seed(1))
    sketch = inputs(x=x).sketches["x"]
    assert apart(sketch, sketch) is None
    assert apart(sketch, None) is None


def test_integers_are_never_the_same_to_rounding() -> None:
    x, tokens = Noising(8, 32).noised(), torch.arange(64).view(8, 8)
    moved = torch.nextafter(x, torch.tensor(9.0))
    assert same_to_rounding(inputs(x=x, t=tokens), inputs(x=moved, t=tokens))
    assert not same_to_rounding(inputs(x=x, t=tokens), inputs(x=moved, t=tokens + 1))
    assert not same_to_rounding(inputs(x=x, t=tokens), inputs(x=moved, t=tokens.float()))


def test_inputs_find_each_other_by_content_and_not_by_name() -> None:
    job = Noising(8, 32)
    up = [torch.nextafter(t, torch.tensor(9.0)) for t in (job.noised(), job.noise)]
    ours, theirs = inputs(x=job.noised(), y=job.noise), inputs(y=up[0], x=up[1])
    assert differing(ours, theirs) == [("x", "y"), ("y", "x")]
    assert same_to_rounding(ours, theirs)
    assert not same_to_rounding(ours, inputs(x=up[0], y=up[0]))
    assert differing(ours, inputs(x=up[0])) is None
