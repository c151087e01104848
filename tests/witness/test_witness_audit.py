"""What an audit looks at closely: gradients, weights, what is kept beside them, evaluation."""

import math

import pytest

JOB = """
import copy, sys
import torch
torch.manual_seed(0); torch.set_num_threads(1)
F = torch.nn.functional
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(16, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.unused = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.tokens.weight
        self.drop = torch.nn.Dropout(0.1)
        self.attention_dropout = 0.2
    def forward(self, x):
        h = self.norm(self.drop(self.tokens(x)).mean(1))
        return self.head(F.dropout(h, self.attention_dropout, self.training))
model = Net()
teacher = copy.deepcopy(model).eval()
shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
X = torch.randint(0, 16, (8, 4, 6), generator=torch.Generator().manual_seed(1))
for i in range(5):
    x = X[i]
    loss = F.cross_entropy(model(x), x[:, 0])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    print("grad", [g.double().norm().item() for g in grads.values()])
    del grads
    optimizer.step(); optimizer.zero_grad()
    with torch.no_grad():
        for k, v in model.named_parameters(): shadow[k].lerp_(v, 0.1)
model.eval()
with torch.no_grad():
    out = model(X[6])
    print("eval", out.double().norm().item())
print("norms", {k: v.double().norm().item() for k, v in model.named_parameters()})
print("shadow", sum(v.double().pow(2).sum().item() for v in shadow.values()) ** 0.5)
"""


def printed(stdout: str, word: str) -> list:
    return [eval(line.split(" ", 1)[1]) for line in stdout.splitlines() if line.startswith(word)]


@pytest.fixture(scope="module")
def audit(watch):
    return watch(JOB, kind="audit", steps=5)


@pytest.fixture(scope="module")
def timed(watch):
    return watch(JOB, steps=5)


def test_gradients_are_those_that_the_optimizer_is_given(audit):
    names = ["tokens.weight", "norm.weight", "norm.bias"]
    assert audit.rank.problems == ()
    steps = audit.rank.steps
    assert len(steps) == 5
    for step, norms in zip(steps, printed(audit.stdout, "grad"), strict=True):
        assert [step.gradients[name][0] for name in names] == pytest.approx(norms, rel=1e-9)
        assert step.gradients["unused.weight"] is None
        assert all(abs(step.gradients[name][1]) < 10 * step.gradients[name][0] for name in names)
        assert math.hypot(*norms) <= 0.5 * (1 + 1e-5)


def test_weights_are_recorded_before_the_first_and_after_the_last_update(audit):
    start, end = audit.rank.weights
    assert (start["when"], start["i"], start["model"]) == ("start", 0, 0)
    assert (end["when"], end["i"], end["model"]) == ("end", 5, 0)
    assert set(start["tensors"]) == set(end["tensors"]) >= {"tokens.weight", "norm.running_mean"}
    (norms,) = printed(audit.stdout, "norms")
    assert {k: end["tensors"][k][0] for k in norms} == pytest.approx(norms, rel=1e-12)
    assert start["tensors"]["tokens.weight"] != end["tensors"]["tokens.weight"]


def test_companions_are_found_at_the_start_and_the_end(audit):
    found = {(c["when"], c["kind"], c["cls"]): c for c in audit.rank.companions}
    assert set(found) == {
        (when, kind, cls)
        for when in ("start", "end")
        for kind, cls in (("module", "Net"), ("dict", "dict"))
    }
    teacher, shadow = found["end", "module", "Net"], found["end", "dict", "dict"]
    assert teacher["norm"] == found["start", "module", "Net"]["norm"]
    assert shadow["norm"] != found["start", "dict", "dict"]["norm"]
    assert (teacher["kept"], shadow["kept"]) == (True, True)
    # The job's end is taken before its own last update of the average.
    assert shadow["norm"] == pytest.approx(printed(audit.stdout, "shadow")[0], rel=1e-2)


def test_optimizer_states_have_dtypes_always_and_norms_in_an_audit(audit, timed):
    states = {state["key"]: state for state in audit.rank.states}
    assert set(states) == {"step", "exp_avg", "exp_avg_sq"}
    assert states["step"]["norm"] == pytest.approx(5 * math.sqrt(3))
    assert states["exp_avg"]["dtypes"] == ["float32"]
    assert states["exp_avg"]["norm"] > 0
    said = {state["key"]: (state["dtypes"], state["norm"]) for state in timed.rank.states}
    assert said["exp_avg"] == (["float32"], None)


def test_evaluation_inputs_and_outputs_are_recorded(audit, timed):
    last = audit.rank.steps[-1]
    assert set(last.eval_digests) == {"x"}
    assert last.eval_sketches == {}  # tokens
    assert last.eval_outputs == pytest.approx(printed(audit.stdout, "eval"))
    assert all(not step.eval_digests for step in audit.rank.steps[:-1])
    assert all(not step.gradients and not step.eval_outputs for step in timed.rank.steps)


def test_dropout_is_told_as_the_job_made_it_in_every_kind_of_run(audit, timed):
    for rank in (audit.rank, timed.rank):
        assert rank.model["dropout"] == {"0.1": 1, "0.2": 1}
    assert [step.dropout_calls for step in audit.rank.steps] == [{"0.2": 1}] * 5
    assert [step.dropout_calls for step in timed.rank.steps] == [{}] * 5


def test_random_numbers_drawn_in_training_forwards_show_on_close_looks(audit, timed):
    assert {step.random["cpu"] for step in audit.rank.steps} == {0.0}
    looks = [step for step in timed.rank.steps if step.close_look]
    moved = [step.random["cpu"] for step in looks]
    assert min(moved) > 1.0
    assert len(set(moved)) == len(moved)


def test_a_model_line_knows_ties_buffers_and_linear_layers(timed):
    model = timed.rank.models[0]
    assert model == timed.rank.model
    assert model["ties"] == [["tokens.weight", "head.weight"]]
    assert set(model["buffers"]) == {"norm.running_mean", "norm.running_var"}
    assert model["linear_numel"] == 8 * 8 + 8 * 16
    assert model["sharded"] == []


def test_matrix_products_are_named_by_dtype(watch, audit):
    assert {step.matmul_dtypes for step in audit.rank.steps} == {("float32",)}
    cast = JOB.replace("model(x), x", "half(x), x").replace(
        "optimizer = ", "half = torch.autocast('cpu', torch.bfloat16)(model)\noptimizer = ", 1
    )
    rank = watch(cast, kind="audit", steps=5).rank
    assert {step.matmul_dtypes for step in rank.steps} == {("bfloat16",)}
    assert rank.precision[0]["autocast"] == {"cuda": None, "cpu": "bfloat16"}


INSIDE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.line = torch.nn.Linear(4, 4)
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.line(x).sum()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.set_float32_matmul_precision("highest")
for i in range(12):
    model(torch.ones(2, 4)).backward()
    if i == 3: optimizer.param_groups[0]["lr"] = 0.05
    if i == 6: optimizer.param_groups[0]["momentum"] = 0.5
    if i == 8: model.half(); torch.set_float32_matmul_precision("high")
    optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.parametrize("kind", ["timed", "audit"])
def test_settings_and_precision_are_told_when_they_change(watch, kind):
    rank = watch(INSIDE, kind=kind, steps=12).rank
    assert rank.optimizers[0]["groups"][0]["settings"]["lr"] == 0.1
    assert [(s["i"], s["optimizer"], s["group"], s["settings"]) for s in rank.settings] == [
        (3, "0:SGD", 0, {"lr": 0.05}),
        (6, "0:SGD", 0, {"momentum": 0.5}),
    ]
    first = rank.precision[0]
    assert first["i"] == 1
    assert first["autocast"]["cpu"] == "bfloat16"
    assert first["parameters"] == first["gradients"] == ["float32"]
    assert first["flags"]["float32_matmul_precision"] == "highest"
    if kind == "audit":
        assert any(p["parameters"] == ["float16"] for p in rank.precision)
        assert rank.precision[-1]["flags"]["float32_matmul_precision"] == "high"


def test_an_audit_changes_no_loss_gradient_or_weight_by_a_bit(watch):
    still = JOB.replace("Dropout(0.1)", "Dropout(0.0)").replace("dropout = 0.2", "dropout = 0.0")
    assert watch(still, kind="audit", steps=5).stdout == watch(still, steps=5).stdout


TWO = """
import torch
from torch.optim.swa_utils import AveragedModel
torch.manual_seed(0); torch.set_num_threads(1)
make = lambda *sizes: torch.nn.Sequential(torch.nn.Linear(*sizes[:2]), torch.nn.Linear(*sizes[1:]))
critic, maker = make(4, 8, 1), make(2, 8, 4)
average = AveragedModel(maker)
first = torch.optim.Adam(critic.parameters(), lr=0.01)
second = torch.optim.RMSprop(maker.parameters(), lr=0.01)
for i in range(3):
    with torch.no_grad(): fake = maker(torch.randn(5, 2))
    loss = critic(torch.randn(5, 4)).mean() - critic(fake).mean()
    first.zero_grad(); loss.backward(); first.step()
    second.zero_grad(); (-critic(maker(torch.randn(5, 2))).mean()).backward(); second.step()
    average.update_parameters(maker)
"""


@pytest.mark.parametrize("ends_by", ["job", "witness"])
def test_two_models_with_an_optimizer_each_and_an_average(watch, ends_by):
    rank = watch(TWO, kind="audit", steps=6 if ends_by == "job" else 4, ends_by=ends_by).rank
    assert rank.sealed
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [list(step.optimizer_calls) for step in rank.steps[:2]] == [["0:Adam"], ["1:RMSprop"]]
    assert [model["title"] for model in rank.models] == ["", "Sequential."]
    assert list(rank.steps[0].gradients) == names
    assert list(rank.steps[1].gradients) == ["Sequential." + name for name in names]
    weights = [(line["when"], line["model"]) for line in rank.weights]
    assert weights == [("start", 0), ("start", 1), ("end", 0), ("end", 1)]
    kept = [(c["when"], c["kind"], c["cls"]) for c in rank.companions]
    assert kept == [("start", "module", "AveragedModel"), ("end", "module", "AveragedModel")]
    assert rank.companions[0]["norm"] != rank.companions[1]["norm"]
    assert {state["optimizer"] for state in rank.states} == {"0:Adam", "1:RMSprop"}
