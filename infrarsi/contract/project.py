"""The models of infrarsi.yaml, schema `infrarsi-project-v1`.

The file has two parts. The contract (see `CONTRACT_KEYS`) is fixed before the search and hashed
into the run; preferences may change between runs.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from infrarsi.contract.constraints import Constraint
from infrarsi.contract.places import Place, PlaceChange, PlaceKind, Scalar

SCHEMA = "infrarsi-project-v1"
CONTRACT_KEYS = (
    "launch",
    "workload",
    "knobs",
    "constraints",
    "sinks",
    "allow",
    "editable",
    "frozen",
    "invariants",
    "requirements",
    "verify",
)
STACKS = ("megatron", "torchtitan", "deepspeed", "hf-trainer", "native-ddp")
BACKENDS = (
    "claude-cli",
    "codex-cli",
    "deepseek",
    "anthropic",
    "openai",
    "openai-compat",
    "vllm",
    "none",
)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Launch(_Model):
    """How the job is started, in the project's folder."""

    command: str = Field(min_length=1)
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(0, ge=0)
    script: str | None = None  # the launch script that settings edit; None: the command itself
    start_timeout_s: float = Field(600.0, gt=0)  # to the first optimizer step
    timeout_s: float = Field(3600.0, gt=0)  # of the whole run
    env_pass: list[str] = []  # variables that the job needs although their name looks secret


class Workload(_Model):
    """How long the real job and one trial are, and how much an update consumes."""

    planned_steps: int = Field(10_000, ge=1)
    optimizer_steps: int = Field(40, ge=5)
    ends_by: Literal["witness", "job"] = "witness"
    samples_per_update: int | None = None
    tokens_per_update: int | None = None


class ValueChange(_Model):
    """What one value of a knob sets and removes."""

    set: dict[str, Scalar] = {}
    remove: list[str] = []

    def parsed(self) -> PlaceChange:
        """With places parsed; raises UserError on an unknown kind."""
        return PlaceChange(
            tuple((Place.parse(place), value) for place, value in self.set.items()),
            tuple(Place.parse(place) for place in self.remove),
        )


MOST_VALUES = 64
"""Of one knob: a search tries some dozens of points in all."""


class Knob(_Model):
    """One setting of the job: its places, its values, and the value that it has today."""

    name: str = Field(min_length=1)
    family: str
    at: str | None = None
    values: list[Scalar] | dict[Scalar, ValueChange]
    reference: Scalar

    @model_validator(mode="after")
    def _check(self) -> "Knob":
        if len(self.values) > MOST_VALUES:
            raise ValueError(
                f"`values` has {len(self.values)} entries, but a search can use {MOST_VALUES} at "
                f"most: list some that are spread over the range"
            )
        if isinstance(self.values, list) and self.at is None:
            raise ValueError("a list of `values` needs `at`: one place such as `flag:--lr`")
        if not any(_same(self.reference, value) for value in self.values):
            raise ValueError(
                f"`reference` must be one of the values {list(self.values)}, "
                f"but got {self.reference!r}"
            )
        if self.at is not None:
            Place.parse(self.at)
        if isinstance(self.values, dict):
            for value in self.values.values():
                value.parsed()
        return self

    def change(self, value: Scalar) -> PlaceChange:
        """What setting this value does to the job; nothing for the reference value."""
        if _same(value, self.reference):
            return PlaceChange()
        if isinstance(self.values, dict):
            return next(c for v, c in self.values.items() if _same(v, value)).parsed()
        assert self.at is not None
        return PlaceChange(((Place.parse(self.at), value),))


class Invariants(_Model):
    """Tolerances of the checks."""

    loss_tolerance: float = Field(0.03, gt=0)
    memory_cap_gib: float | None = Field(None, gt=0)
    precision: list[str] | None = None
    numerics: Literal["banded", "bitwise"] = "banded"


class Requirements(_Model):
    """Requirements in plain language."""

    text: list[str] = []
    on_unsupported: Literal["stop", "continue"] = "stop"


class Resume(ValueChange):
    """How the job is told to go on from a checkpoint.

    A value may hold `@CHECKPOINT@` or `@CHECKPOINT_DIR@`; without either the checkpoint is put back
    where the job left it. `checkpoint` says which one, as a pattern of its path below the sinks.
    """

    checkpoint: str | None = None
    steps: int = Field(5, ge=2)  # optimizer steps of a resumed run


class Verify(_Model):
    """How a winner is verified."""

    confidence: float = Field(0.95, gt=0.5, lt=1)
    max_pairs: int | Literal["auto"] = "auto"
    min_gain: float = Field(0.002, ge=0)
    numerics: Literal["banded", "bitwise"] = "banded"
    long_steps: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"  # 0: no longer run
    user_tests: list[Annotated[str, Field(min_length=1)]] = []
    resume_check: bool | Literal["auto"] = "auto"
    resume: Resume | None = None

    @model_validator(mode="after")
    def _check(self) -> "Verify":
        if self.resume is not None:
            if not self.resume.set:
                raise ValueError("`resume` needs `set`: the flag that makes the job resume")
            self.resume.parsed()
        elif self.resume_check is True:
            raise ValueError(
                "`resume_check: true` needs `resume`, for example "
                '`resume: {set: {"flag:--resume": "@CHECKPOINT@"}}`'
            )
        return self


class Llm(_Model):
    """Which model proposes; `none` searches with families and recipes alone."""

    backend: Literal[
        "claude-cli",
        "codex-cli",
        "deepseek",
        "anthropic",
        "openai",
        "openai-compat",
        "vllm",
        "none",
    ] = "none"
    model: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    context_tokens: int | None = None
    extra_body: dict[str, Any] | None = None


class Budget(_Model):
    """When the search ends; every limit that is set holds."""

    screens: int = Field(16, ge=1)
    target_speedup: float | None = Field(None, gt=1)
    target_mfu: float | None = Field(None, gt=0)
    gpu_hours: float | None = Field(None, gt=0)
    llm_tokens: int | None = Field(None, ge=0)
    llm_usd: float | None = Field(None, ge=0)
    wall_hours: float | None = Field(None, gt=0)


class Search(_Model):
    """How the search is done."""

    seed: int = 0
    patches: Literal["all", "none"] | list[str] = "all"
    searcher: Literal["hypothesis", "optuna", "hyperopt", "random", "ofat"] = "hypothesis"
    budget: Budget = Field(default_factory=Budget)


class Debate(_Model):
    """The dual-model mode."""

    enabled: bool = False
    second: str | None = None
    verifier: str | None = None
    verify_rounds: int = 2


class Cluster(_Model):
    """Where it runs."""

    address: str = "auto"
    parallel_trials: int | Literal["auto"] = "auto"
    launcher: Literal["auto", "actors", "train"] = "auto"


class Policy(_Model):
    """What `optimize --yes` may do by itself."""

    apply: Literal["confirm", "never"] = "confirm"


class Project(_Model):
    """One infrarsi.yaml."""

    schema_: Literal["infrarsi-project-v1"] = Field("infrarsi-project-v1", alias="schema")
    name: str = Field(min_length=1)
    stack: Literal["megatron", "torchtitan", "deepspeed", "hf-trainer", "native-ddp"] = "native-ddp"
    launch: Launch
    workload: Workload = Field(default_factory=Workload)
    knobs: list[Knob] = []
    constraints: list[str] = []
    sinks: dict[str, str] = {}
    allow: list[str] = []
    editable: list[str] = []
    frozen: dict[str, str] = {}
    invariants: Invariants = Field(default_factory=Invariants)
    llm: Llm = Field(default_factory=Llm)
    search: Search = Field(default_factory=Search)
    experience: str = "auto"
    requirements: Requirements = Field(default_factory=Requirements)
    debate: Debate = Field(default_factory=Debate)
    verify: Verify = Field(default_factory=Verify)
    cluster: Cluster = Field(default_factory=Cluster)
    policy: Policy = Field(default_factory=Policy)

    @property
    def bitwise(self) -> bool:
        """Whether equality to the last bit is asked for instead of bands."""
        return "bitwise" in (self.invariants.numerics, self.verify.numerics)

    @model_validator(mode="after")
    def _check(self) -> "Project":
        names = [knob.name for knob in self.knobs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two knobs are named {name!r}")
        known = {*names, *(knob.family for knob in self.knobs), "world", "data_parallel"}
        for text in self.constraints if "knobs" in self.model_fields_set else ():
            unknown = Constraint.parse(text).names - known
            if unknown:
                raise ValueError(
                    f"constraint {text!r} names {sorted(unknown)[0]!r}; known are {sorted(known)}"
                )
        both = set(self.editable) & set(self.frozen)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} is both editable and frozen")
        for text in self._config_places():
            if Place.parse(text).file in self.frozen:
                raise ValueError(f"{text!r} sets a value in a file that is frozen")
        for text, value in self.sinks.items():
            place = Place.parse(text)
            if place.kind is PlaceKind.PATH and value != "fresh":
                raise ValueError(f"a `path:` sink must be `fresh`, but {text!r} is {value!r}")
        return self

    def _config_places(self) -> list[str]:
        """The places of knobs and sinks that lie in configuration files."""
        found = [knob.at for knob in self.knobs if knob.at is not None]
        for knob in self.knobs:
            if isinstance(knob.values, dict):
                for change in knob.values.values():
                    found += [*change.set, *change.remove]
        return [text for text in (*found, *self.sinks) if Place.parse(text).file]

    def contract_hash(self) -> str:
        """SHA-256 of the contract part; `--resume` refuses another one."""
        data = self.model_dump(mode="json", by_alias=True, include=set(CONTRACT_KEYS))
        if data["verify"]["resume"] is None:  # runs of version 0.1.0 were begun without the key
            del data["verify"]["resume"]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _same(a: Scalar, b: Scalar) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
