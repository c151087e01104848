"""The schema `infrarsi-pack-v1`: what one run measured, in the words of knob families."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from infrarsi.contract import Scalar
from infrarsi.contract.secrecy import without_secrets

SCHEMA = "infrarsi-pack-v1"

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.+-]{0,99}$")]
"""One word: letters, digits and `_ . + -`, so that no path and no sentence is in it."""
Value = bool | int | float | Word
Measured = tuple[float, Annotated[float, Field(gt=0)]]
"""Mean and standard deviation."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)


class Context(_Model):
    """What it was measured on, as far as the run knows; `gpu` None is a CPU."""

    stack: Word
    gpu: Annotated[str, StringConstraints(pattern=r"^[\w .()+-]{1,80}$")] | None = None
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(0, ge=0)
    num_parameters: int | None = Field(None, gt=0)
    sequence_length: int | None = Field(None, gt=0)
    samples_per_update: int | None = Field(None, gt=0)
    versions: dict[Word, Word] = {}

    @property
    def world(self) -> int:
        """Processes over all nodes."""
        return self.nodes * max(self.gpus_per_node, 1)


class Effect(_Model):
    """What one value does against the pack's reference value of its family.

    Posterior mean and standard deviation of the change of log step time (negative is faster) and
    of log activation memory; null where the trials say little of it.
    """

    family: Word
    value: Value
    log_time: Measured | None = None
    log_memory: Measured | None = None


class Failure(_Model):
    """Values that made trials end so with this probability: one, or two in a conflict.

    Of a trial that ran out of memory: all the values that it changed.
    """

    values: dict[Word, Value] = Field(min_length=1)
    outcome: Word
    probability: float = Field(1.0, ge=0, le=1)


class PatchRecord(_Model):
    """One code change: a recipe, which transfers; a diff, which fits files of these digests only;
    or a description in words."""

    recipe: Word | None = None
    parameters: dict[Word, Value] = {}
    diff: str | None = None
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]] = {}
    description: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "PatchRecord":
        given = [self.recipe, self.diff, self.description]
        if sum(each is not None for each in given) != 1:
            raise ValueError("a patch has one of `recipe`, `diff` and `description`")
        if (self.diff is not None) != bool(self.files):
            raise ValueError("a `diff` comes with the digests of its `files`, and only it")
        if self.parameters and self.recipe is None:
            raise ValueError("only a `recipe` has `parameters`")
        for name in self.files:
            if name.startswith(("/", "~")) or ".." in name.split("/"):
                raise ValueError(f"{name!r} is no path within the project")
        return self


class Change(_Model):
    """The verified change: values by family, patches, and the speed-up with its interval."""

    values: dict[Word, Value] = {}
    patches: list[PatchRecord] = []
    speedup: float = Field(gt=0)
    speedup_low: float = Field(gt=0)
    speedup_high: float = Field(gt=0)
    pairs: int = Field(ge=0)

    @model_validator(mode="after")
    def _check(self) -> "Change":
        if not self.speedup_low <= self.speedup <= self.speedup_high:
            raise ValueError("`speedup` must lie between `speedup_low` and `speedup_high`")
        return self


class Head(_Model):
    """A pack without its lists: the first record of its JSON lines."""

    schema_: Literal["infrarsi-pack-v1"] = Field("infrarsi-pack-v1", alias="schema")
    id: Word
    title: str = Field(min_length=1, max_length=200)
    context: Context
    reference: dict[Word, Value] = {}
    reference_step_s: float | None = Field(None, gt=0)
    step_log_sd: float | None = Field(None, ge=0)
    trials: int = Field(0, ge=0)

    @field_validator("title")
    @classmethod
    def _is_clean(cls, title: str) -> str:
        if not title.isprintable() or without_secrets(title) != title:
            raise ValueError("the title must be one line without a secret in it")
        if any(word.startswith(("/", "~/")) for word in title.split()):
            raise ValueError("the title must not name a path")
        return title


class Pack(Head):
    """One run's experience.

    `reference` is the job's own value of each family that was searched; effects are against it.
    """

    effects: list[Effect] = []
    failures: list[Failure] = []
    conflicts: list[Failure] = []
    change: Change | None = None

    @model_validator(mode="after")
    def _check(self) -> "Pack":
        known: set[tuple[str, str]] = set()
        for effect in self.effects:
            key = (effect.family, repr(effect.value))
            if key in known:
                raise ValueError(f"{effect.family} {effect.value!r} has two effects")
            if effect.family not in self.reference:
                raise ValueError(f"`reference` has no value of {effect.family}")
            known.add(key)
        return self

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be learned from it."""
        return not (self.effects or self.failures or self.conflicts or self.change)

    def effect(self, family: str, value: Scalar) -> Effect | None:
        """The effect of a canonical value; None where it was not measured."""
        found = (e for e in self.effects if e.family == family and is_same(e.value, value))
        return next(found, None)


def is_same(a: Scalar, b: Scalar) -> bool:
    """Equality that does not take True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
