"""What is recorded of jobs that leave the loop, the sharding or the optimizer to a library."""

import math
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.stacks

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")


def moved(rank) -> dict[str, list[bool]]:
    """For each weight whether its norm or projection changed from start to end."""
    lines = {line["when"]: line["tensors"] for line in rank.weights if line["model"] == 0}
    return {name: lines["start"][name] != numbers for name, numbers in lines["end"].items()}


def assert_whole(rank, steps: int, names: set[str]) -> None:
    """Every step has a loss, gradients of the named parameters, and weights at both ends."""
    assert rank.sealed
    assert rank.problems == ()
    assert len(rank.steps) == steps
    for step in rank.steps:
        assert step.loss is not None
        assert set(step.gradients) == names
        assert all(step.gradients.values())
    assert set(moved(rank)) == names
    assert all(moved(rank).values())
    assert {state["key"] for state in rank.states} >= {"exp_avg", "exp_avg_sq"}


NET = """
import os, sys, warnings
import torch
torch.manual_seed(0); torch.set_num_threads(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)
        self.drop = torch.nn.Dropout(0.1)
    def forward(self, x, labels=None):
        loss = (self.two(self.drop(torch.tanh(self.one(x)))).squeeze(-1) - labels).pow(2).mean()
        return {"loss": loss}
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"x": torch.randn(8, generator=g), "labels": torch.randn((), generator=g)}
"""
NAMES = {"one.weight", "one.bias", "two.weight", "two.bias"}

TRAINER = (
    NET
    + """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments(output_dir="out", max_steps=4, per_device_train_batch_size=4,
    gradient_accumulation_steps=2, use_cpu=True, report_to=[], save_strategy="no",
    learning_rate=1e-2, max_grad_norm=0.1, eval_strategy="steps", eval_steps=2, bf16=BF16,
    disable_tqdm=True)
Trainer(Net(), arguments, train_dataset=Rows(), eval_dataset=Rows()).train()
"""
)


@needs("transformers")
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
def test_hf_trainer(watch, bf16):
    text = TRAINER.replace("BF16", str(bf16))
    rank = watch(text, kind="audit", steps=4, command=(sys.executable,)).rank
    assert_whole(rank, 4, NAMES)
    for step in rank.steps:
        assert (step.forwards, step.samples) == (2, 8)
        total = math.hypot(*(norm for norm, _ in step.gradients.values()))
        assert total <= 0.1 * 1.0001  # read after the clipping
    assert [step.eval_calls > 0 for step in rank.steps] == [False, True, False, True]
    assert rank.steps[1].eval_digests == rank.steps[3].eval_digests != {}
    assert rank.model["dropout"] == {"0.1": 1}
    assert len(rank.settings) >= 3  # the rate falls at every step
    dtype = "bfloat16" if bf16 else None
    assert rank.precision[0]["autocast"]["cpu"] == dtype
    assert rank.steps[0].matmul_dtypes == (dtype or "float32",)


ACCELERATE = (
    NET
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(Rows(), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step(); optimizer.zero_grad()
"""
)


@needs("accelerate")
def test_accelerate_with_autocast_inside_the_forward(watch):
    rank = watch(ACCELERATE, kind="audit", steps=4, command=(sys.executable,)).rank
    assert_whole(rank, 4, NAMES)
    assert all(step.forwards == 2 for step in rank.steps)
    assert rank.precision[0]["autocast"]["cpu"] == "bfloat16"
    timed = watch(ACCELERATE, kind="timed", steps=4, command=(sys.executable,)).rank
    assert timed.precision[0]["autocast"]["cpu"] == "bfloat16"


FSDP = (
    NET
    + """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
model = Net()
fully_shard(model.one, mesh=mesh); fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for i in range(4):
    batch = [Rows()[8 * i + 4 * dist.get_rank() + j] for j in range(4)]
    x, labels = (torch.stack([row[key] for row in batch]) for key in ("x", "labels"))
    model(x, labels)["loss"].backward()
    grads = [p.grad.full_tensor() for p in model.parameters()]
    if dist.get_rank() == 0: print([g.double().pow(2).sum().item() for g in grads])
    optimizer.step(); optimizer.zero_grad()
dist.destroy_process_group()
"""
)


def test_fsdp2_ranks_record_their_own_shards(watch):
    observed = watch(FSDP, kind="audit", steps=4, command=(sys.executable, *TORCHRUN))
    left, right = observed.ranks
    for rank in (left, right):
        assert rank.sealed
        assert set(rank.model["sharded"]) == NAMES
        assert len(rank.steps) == 4
    for step, other, whole in zip(
        left.steps, right.steps, map(eval, observed.stdout.splitlines()), strict=True
    ):
        both = [
            step.gradients[n][0] ** 2 + other.gradients[n][0] ** 2
            for n in ("one.weight", "one.bias", "two.weight", "two.bias")
        ]
        assert both == pytest.approx(whole, rel=1e-6)
    assert set(moved(left)) == NAMES


DEEPSPEED = (
    NET
    + """
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
model = Net()
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
          "zero_optimization": {"stage": int(sys.argv[2])}, "gradient_clipping": 0.1}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
deepspeed.init_distributed("gloo")
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
rows = Rows()
for i in range(8):
    batch = [rows[4 * i + j] for j in range(4)]
    x, labels = (torch.stack([row[key] for row in batch]) for key in ("x", "labels"))
    engine.backward(engine(x, labels=labels)["loss"])
    engine.step()
"""
)


@needs("deepspeed")
@pytest.mark.parametrize("stage", [1, 2])
def test_deepspeed_is_recorded_by_its_flat_parts(watch, free_port, stage):
    command = (sys.executable,)
    arguments = (str(free_port), str(stage))
    observed = watch(DEEPSPEED, *arguments, kind="audit", steps=4, command=command)
    rank = observed.rank
    assert rank.sealed, observed.stderr
    assert rank.model["cls"] == "Net"  # the job's own, not the engine around it
    assert all("x" in step.elements for step in rank.steps)
    assert rank.problems == ()
    assert len(rank.steps) == 4
    assert all(step.forwards == 2 and step.loss is not None for step in rank.steps)
    assert all(moved(rank).values())
    for step in rank.steps:
        ((name, (norm, _)),) = step.gradients.items()
        assert name == "0:AdamW.0.0"  # one flat master part for the group
        assert 0 < norm <= 0.1 * 1.0001
    assert {state["key"] for state in rank.states} >= {"exp_avg", "exp_avg_sq"}


MEGATRON = """
import os, sys
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=sys.argv[1])
sys.path.insert(0, sys.argv[2])
sys.argv[1:] = sys.argv[3:]
import pretrain_gpt
pretrain_gpt.main()
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "megatron_gpt"
TINY = (
    *("--num-layers", "1", "--hidden-size", "16", "--num-attention-heads", "2"),
    *("--seq-length", "16", "--max-position-embeddings", "16", "--micro-batch-size", "2"),
    *("--global-batch-size", "4", "--train-iters", "4", "--mock-data", "--vocab-size", "32"),
    *("--attention-dropout", "0", "--hidden-dropout", "0", "--clip-grad", "0.1"),
)


@needs("megatron")
@pytest.mark.parametrize("more", [(), ("--use-distributed-optimizer",)], ids=["plain", "divided"])
def test_megatrons_own_optimizer_is_recorded_by_the_one_inside_it(watch, free_port, more):
    arguments = (str(free_port), str(EXAMPLE), *TINY, *more)
    command = (sys.executable, "-W", "ignore")
    observed = watch(MEGATRON, *arguments, kind="audit", steps=4, command=command)
    rank = observed.rank
    assert rank.sealed, observed.stderr
    assert rank.problems == ()
    assert [step.forwards for step in rank.steps] == [2] * 4
    assert all(step.loss is not None for step in rank.steps)
    assert rank.model["cls"] == "GPTModel"
    assert rank.model["sharded"] == []  # one rank holds every parameter whole
    assert [o["name"] for o in rank.optimizers] == ["0:AdamW"]
    assert any(moved(rank).values())
    for step in rank.steps:
        assert 0 < sum(norm**2 for norm, _ in step.gradients.values()) ** 0.5 <= 0.1001
    assert {state["key"] for state in rank.states} >= {"exp_avg", "exp_avg_sq"}


SCALED = (
    NET
    + """
fused = sys.argv[1] == "fused"
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for i in range(4):
    batch = [Rows()[8 * i + j] for j in range(8)]
    x, labels = (torch.stack([row[key] for row in batch]) for key in ("x", "labels"))
    loss = model(x, labels)["loss"]
    scaler.scale(loss).backward()
    print([p.grad.double().norm().item() / 1024 for p in model.parameters()])
    if sys.argv[1] == "clipped":
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
"""
)


@pytest.mark.parametrize("how", ["plain", "clipped", "fused"])
def test_gradients_are_unscaled_however_the_scaler_does_it(watch, how):
    observed = watch(SCALED, how, kind="audit", steps=4)
    assert_whole(observed.rank, 4, NAMES)
    for step, norms in zip(
        observed.rank.steps, map(eval, observed.stdout.splitlines()), strict=True
    ):
        assert [norm for norm, _ in step.gradients.values()] == pytest.approx(norms, rel=1e-5)


WRAPPED = (
    NET
    + """
class Wrapper(torch.optim.Optimizer):
    '''Holds 32-bit masters of 16-bit weights, as large engines do.'''
    def __init__(self, model):
        super().__init__(model.parameters(), {})
        self.model_params = [p for p in self.param_groups[0]["params"]]
        self.masters = [p.detach().float().clone() for p in self.model_params]
        for p, m in zip(self.model_params, self.masters):
            p.main_param = m
            p.main_grad = torch.zeros_like(m)
        self.inner = torch.optim.AdamW(self.masters, lr=1e-2)
    def step(self, closure=None):
        for p, m in zip(self.model_params, self.masters):
            m.grad = p.main_grad.clone() / 4  # unscaled here, so the inner step gets the real ones
        self.inner.step()
        for p, m in zip(self.model_params, self.masters): p.data.copy_(m)
model = Net().bfloat16()
optimizer = Wrapper(model)
def accumulate(p):
    p.main_grad.add_(p.grad.float()); p.grad = None
for p in model.parameters(): p.register_post_accumulate_grad_hook(accumulate)
for i in range(4):
    batch = [Rows()[8 * i + j] for j in range(8)]
    x, labels = (torch.stack([row[key] for row in batch]).bfloat16() for key in ("x", "labels"))
    (4 * model(x, labels)["loss"]).backward()
    print([p.main_grad.double().norm().item() / 4 for p in model.parameters()])
    optimizer.step()
    for p in model.parameters(): p.main_grad.zero_()
"""
)


def test_a_wrapper_with_master_weights_gives_way_to_the_optimizer_inside_it(watch):
    observed = watch(WRAPPED, kind="audit", steps=4)
    assert observed.exit_code == 0, observed.stderr
    rank = observed.rank
    assert_whole(rank, 4, NAMES)
    assert rank.precision[0]["parameters"] == ["bfloat16"]
    assert [o["name"] for o in rank.optimizers] == ["0:Wrapper", "1:AdamW"]
    assert [step.learning_rates for step in rank.steps] == [(1e-2,)] * 4
    assert [step.optimizer_calls for step in rank.steps] == [{"0:Wrapper": 1}] * 4
    for step, norms in zip(rank.steps, map(eval, observed.stdout.splitlines()), strict=True):
        assert [norm for norm, _ in step.gradients.values()] == pytest.approx(norms, rel=1e-6)


CONTAINER = (
    NET
    + """
class Container(torch.optim.Optimizer):
    '''Steps an optimizer of its own, in the manner of torchtitan: its groups are never changed.'''
    def __init__(self, model):
        self.inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
        super().__init__(list(model.parameters()), {"lr": 1e-2})
    def step(self, closure=None):
        self.inner.step()
model = Net()
optimizer = Container(model)
for i in range(4):
    batch = [Rows()[8 * i + j] for j in range(8)]
    x, labels = (torch.stack([row[key] for row in batch]) for key in ("x", "labels"))
    for group in optimizer.inner.param_groups: group["lr"] = 1e-3 * (i + 1)
    model(x, labels)["loss"].backward()
    optimizer.step()
    optimizer.inner.zero_grad()
"""
)


def test_the_rates_of_an_optimizer_inside_a_container_are_seen(watch):
    observed = watch(CONTAINER, kind="timed", steps=4)
    assert observed.exit_code == 0, observed.stderr
    rates = [step.learning_rates for step in observed.rank.steps]
    assert rates == [(1e-2, pytest.approx(1e-3 * (i + 1))) for i in range(4)]
    said = {(line["optimizer"], line["i"]): line["settings"] for line in observed.rank.settings}
    assert [said["1:AdamW", i]["lr"] for i in (1, 2, 3)] == pytest.approx([2e-3, 3e-3, 4e-3])
