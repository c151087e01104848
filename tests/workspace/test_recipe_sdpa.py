"""Attention in many hands: what becomes one call computes the same, look-alikes stay untouched."""

# Spelled as their authors write them.
# ruff: noqa: E501

import copy
import textwrap
from dataclasses import dataclass

import pytest

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.sdpa_attention import SdpaAttention

HEADER = "import math\n\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


@dataclass(frozen=True)
class Spelling:
    """One attention; `make` builds the module, called on x of shape (2, 12, 32)."""

    name: str
    make: str
    code: str
    header: str = HEADER
    expect: str = "is_causal=True"

    @property
    def text(self) -> str:
        return self.header + "\n\n" + textwrap.dedent(self.code).lstrip("\n")


NANOGPT = """
    class CausalSelfAttention(nn.Module):
        def __init__(self, config):
            super().__init__()
            assert config.n_embd % config.n_head == 0
            # key, query, value projections for all heads, but in a batch
            self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
            self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
            self.n_head = config.n_head
            self.n_embd = config.n_embd
            self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size))
                                        .view(1, 1, config.block_size, config.block_size))

        def forward(self, x):
            B, T, C = x.size() # batch size, sequence length, embedding dimensionality (n_embd)
            q, k, v  = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
            # causal self-attention; Self-attend: (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:,:,:T,:T] == 0, float('-inf'))
            att = F.softmax(att, dim=-1)
            y = att @ v # (B, nh, T, T) x (B, nh, T, hs) -> (B, nh, T, hs)
            y = y.transpose(1, 2).contiguous().view(B, T, C) # re-assemble all head outputs
            return self.c_proj(y)
    class Config:
        n_embd, n_head, block_size, bias = 32, 4, 16, True
"""

LECTURE_HEAD = """
    n_embd, block_size = 32, 16
    class Head(nn.Module):
        \"\"\" one head of self-attention \"\"\"
        def __init__(self, head_size):
            super().__init__()
            self.key = nn.Linear(n_embd, head_size, bias=False)
            self.query = nn.Linear(n_embd, head_size, bias=False)
            self.value = nn.Linear(n_embd, head_size, bias=False)
            self.register_buffer('tril', torch.tril(torch.ones(block_size, block_size)))

        def forward(self, x):
            B,T,C = x.shape
            k = self.key(x)
            q = self.query(x)
            # compute attention scores ("affinities")
            wei = q @ k.transpose(-2,-1) * k.shape[-1]**-0.5
            wei = wei.masked_fill(self.tril[:T, :T] == 0, float('-inf'))
            wei = F.softmax(wei, dim=-1)
            # perform the weighted aggregation of the values
            v = self.value(x)
            out = wei @ v
            return out
"""

VIT = """
    class Attention(nn.Module):
        def __init__(self, dim, num_heads=8, qkv_bias=False, attn_drop=0.0):
            super().__init__()
            self.num_heads = num_heads
            head_dim = dim // num_heads
            self.scale = head_dim ** -0.5
            self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x):
            B, N, C = x.shape
            qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.unbind(0)
            attn = (q @ k.transpose(-2, -1)) * self.scale
            attn = attn.softmax(dim=-1)
            x = (attn @ v).transpose(1, 2).reshape(B, N, C)
            return self.proj(x)
"""

SCALED_QUERY = """
    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.num_heads = heads
            self.head_dim = dim // heads
            self.scale = self.head_dim ** -0.5
            self.qkv = nn.Linear(dim, dim * 3)
            self.attn_drop = nn.Dropout(0.0)

        def forward(self, x):
            B, N, C = x.shape
            qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            q = q * self.scale
            attn = q @ k.transpose(-2, -1)
            attn = attn.softmax(dim=-1)
            attn = self.attn_drop(attn)
            x = attn @ v
            x = x.transpose(1, 2).reshape(B, N, C)
            return x
"""

TRIU_LOCAL = """
    class SelfAttention(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            self.h, self.d_k = n_heads, d_model // n_heads
            self.wq = nn.Linear(d_model, d_model)
            self.wk = nn.Linear(d_model, d_model)
            self.wv = nn.Linear(d_model, d_model)

        def forward(self, x):
            bsz, seqlen, _ = x.shape
            q = self.wq(x).view(bsz, seqlen, self.h, self.d_k).transpose(1, 2)
            k = self.wk(x).view(bsz, seqlen, self.h, self.d_k).transpose(1, 2)
            v = self.wv(x).view(bsz, seqlen, self.h, self.d_k).transpose(1, 2)
            mask = torch.triu(torch.ones(seqlen, seqlen, dtype=torch.bool, device=x.device), diagonal=1)
            scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.d_k)
            scores = scores.masked_fill(mask, float("-inf"))
            weights = torch.softmax(scores, dim=-1)
            context = torch.matmul(weights, v)
            return context.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
"""

ADDITIVE = """
    class Attention(nn.Module):
        def __init__(self, dim: int, n_heads: int):
            super().__init__()
            self.n_heads = n_heads
            self.head_dim = dim // n_heads
            self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
            self.wk = nn.Linear(dim, n_heads * self.head_dim, bias=False)
            self.wv = nn.Linear(dim, n_heads * self.head_dim, bias=False)

        def forward(self, x: torch.Tensor):
            bsz, seqlen, _ = x.shape
            xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
            xq = xq.view(bsz, seqlen, self.n_heads, self.head_dim)
            xk = xk.view(bsz, seqlen, self.n_heads, self.head_dim)
            xv = xv.view(bsz, seqlen, self.n_heads, self.head_dim)
            xq = xq.transpose(1, 2)
            keys = xk.transpose(1, 2)
            values = xv.transpose(1, 2)
            mask = torch.full((seqlen, seqlen), float("-inf"), device=x.device)
            mask = torch.triu(mask, diagonal=1)
            scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
            scores = scores + mask  # (bs, n_local_heads, slen, cache_len + slen)
            scores = F.softmax(scores.float(), dim=-1).type_as(xq)
            output = torch.matmul(scores, values)  # (bs, n_local_heads, slen, head_dim)
            output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
            return output
"""

EINSUM_HEADS_LAST = """
    class MultiHead(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.to_qkv = nn.Linear(width, 3 * width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.to_qkv(x).view(b, t, 3, self.heads, c // self.heads).unbind(dim=2)
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
            causal = torch.ones(t, t, device=x.device, dtype=torch.bool).tril()
            scores = scores.masked_fill(~causal, -torch.inf)
            probs = scores.softmax(dim=-1)
            out = torch.einsum("bhqk,bkhd->bqhd", probs, v)
            return out.reshape(b, t, c)
"""

EINSUM_PLAIN = """
    def attend(q, k, v):
        d = q.shape[-1]
        sim = einsum('b h i d, b h j d -> b h i j', q, k) * (d ** -0.5)
        attn = sim.softmax(dim = -1)
        return einsum('b h i j, b h j d -> b h i d', attn, v)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = (t.reshape(2, 12, 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            return attend(q, k, v)
"""

ONE_LINE = """
    class Attn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            return torch.softmax(torch.bmm(q, k.transpose(1, 2)) / sqrt(q.size(-1)), dim=-1) @ v
"""

INPLACE = """
    class A(nn.Module):
        def __init__(self, n_embd, n_head):
            super().__init__()
            self.n_head = n_head
            self.proj = nn.Linear(n_embd, 3 * n_embd)
            mask = torch.full((1, 1, 64, 64), float('-inf'))
            mask = torch.triu(mask, diagonal=1)
            self.register_buffer("causal_mask", mask, persistent=False)

        def forward(self, x):
            B, T, C = x.shape
            hs = C // self.n_head
            q, k, v = self.proj(x).split(C, dim=-1)
            q = q.reshape(B, T, self.n_head, hs).permute(0, 2, 1, 3)
            k = k.reshape(B, T, self.n_head, hs).permute(0, 2, 1, 3)
            v = v.reshape(B, T, self.n_head, hs).permute(0, 2, 1, 3)
            scale = 1.0 / math.sqrt(hs)
            attn = q @ k.mT
            attn *= scale
            attn += self.causal_mask[:, :, :T, :T]
            attn = attn.softmax(-1)
            return (attn @ v).permute(0, 2, 1, 3).reshape(B, T, C)
"""

WHERE = """
    class A(nn.Module):
        def __init__(self, d, nhead):
            super().__init__()
            self.nhead = nhead
            self.q = nn.Linear(d, d); self.k = nn.Linear(d, d); self.v = nn.Linear(d, d)
            self.softmax = nn.Softmax(dim=-1)
            self.register_buffer("mask", torch.tril(torch.ones(64, 64, dtype=torch.bool))[None, None])

        def split(self, x):
            b, t, d = x.shape
            return x.view(b, t, self.nhead, d // self.nhead).transpose(1, 2)

        def forward(self, x):
            b, t, d = x.shape
            q = self.q(x).view(b, t, self.nhead, d // self.nhead).transpose(1, 2)
            k = self.k(x).view(b, t, self.nhead, d // self.nhead).transpose(1, 2)
            v = self.v(x).view(b, t, self.nhead, d // self.nhead).transpose(1, 2)
            kt = k.transpose(-2, -1)
            w = torch.matmul(q, kt)
            w = w / (v.size(-1) ** 0.5)
            w = torch.where(self.mask[:, :, :t, :t], w, torch.finfo(w.dtype).min)
            w = self.softmax(w)
            a = torch.matmul(w, v)
            return a.transpose(1, 2).reshape(b, t, d)
"""

BOTH_SCALED = """
    class Whisperish(nn.Module):
        def __init__(self, n_state, n_head):
            super().__init__()
            self.n_head = n_head
            self.query = nn.Linear(n_state, n_state)
            self.key = nn.Linear(n_state, n_state, bias=False)
            self.value = nn.Linear(n_state, n_state)

        def forward(self, x):
            return self.qkv_attention(self.query(x), self.key(x), self.value(x))

        def qkv_attention(self, q, k, v):
            n_batch, n_ctx, n_state = q.shape
            scale = (n_state // self.n_head) ** -0.25
            q = q.view(*q.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) * scale
            k = k.view(*k.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) * scale
            v = v.view(*v.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
            qk = q @ k.transpose(-1, -2)
            w = F.softmax(qk, dim=-1).to(q.dtype)
            return (w @ v).permute(0, 2, 1, 3).flatten(start_dim=2)
"""

ROPE = """
    def rotate(x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    class RotaryAttention(nn.Module):
        def __init__(self, hidden, heads):
            super().__init__()
            self.num_heads = heads
            self.head_dim = hidden // heads
            self.scaling = self.head_dim ** -0.5
            self.q_proj = nn.Linear(hidden, hidden)
            self.k_proj = nn.Linear(hidden, hidden)
            self.v_proj = nn.Linear(hidden, hidden)

        def forward(self, hidden_states):
            bsz, q_len, _ = hidden_states.size()
            query_states = self.q_proj(hidden_states).view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
            key_states = self.k_proj(hidden_states).view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
            value_states = self.v_proj(hidden_states).view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
            angles = torch.arange(q_len)[:, None] * torch.ones(self.head_dim) * 0.1
            query_states = query_states * angles.cos() + rotate(query_states) * angles.sin()
            key_states = key_states * angles.cos() + rotate(key_states) * angles.sin()
            attn_weights = torch.matmul(query_states, key_states.transpose(2, 3)) * self.scaling
            causal_mask = torch.triu(torch.ones(q_len, q_len), diagonal=1).bool().to(hidden_states.device)
            attn_weights = attn_weights.masked_fill(causal_mask[None, None, :, :], torch.finfo(attn_weights.dtype).min)
            # upcast attention to fp32
            attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query_states.dtype)
            attn_output = torch.matmul(attn_weights, value_states)
            return attn_output.transpose(1, 2).reshape(bsz, q_len, -1)
"""

SPELLINGS = [
    Spelling("nanogpt", "CausalSelfAttention(Config)", NANOGPT, expect="(q, k, v, is_causal=True)"),
    Spelling("lecture-head", "Head(8)", LECTURE_HEAD, expect="(q, k, v, is_causal=True)"),
    Spelling("vit-full", "Attention(32, 4)", VIT, expect="(q, k, v, scale=self.scale)"),
    Spelling("scaled-query", "Attention(32, 4)", SCALED_QUERY, expect="scale=self.scale)"),
    Spelling("local-triu", "SelfAttention(32, 4)", TRIU_LOCAL, expect="(q, k, v, is_causal=True)"),
    Spelling("additive-upcast", "Attention(32, 4)", ADDITIVE),
    Spelling("einsum-heads-last", "MultiHead(32, 4)", EINSUM_HEADS_LAST),
    Spelling(
        "einsum-imported",
        "Block()",
        EINSUM_PLAIN,
        "import torch\nfrom torch import einsum, nn\n",
        "nn.functional.scaled_dot_product_attention(q, k, v)",
    ),
    Spelling(
        "one-line",
        "Attn()",
        ONE_LINE,
        "from math import sqrt\n\nimport torch\n",
        "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    ),
    Spelling("in-place", "A(32, 4)", INPLACE),
    Spelling("where-finfo", "A(32, 4)", WHERE),
    Spelling("both-scaled", "Whisperish(32, 4)", BOTH_SCALED, expect="scale=scale * scale\n"),
    Spelling("rope", "RotaryAttention(32, 4)", ROPE),
]


def apply(*texts: str) -> Applied | Declined:
    return SdpaAttention().apply({f"model{i or ''}.py": text for i, text in enumerate(texts)})


def run(text: str, make: str, dtype: str = "float32"):
    """Output and gradients of input and parameters, from the same initial state."""
    import torch

    space: dict[str, object] = {}
    exec(compile(text, "model.py", "exec"), space)
    torch.manual_seed(0)
    module = eval(make, space).to(getattr(torch, dtype))
    x = torch.randn(2, 12, 32, dtype=getattr(torch, dtype), requires_grad=True)
    out = module(x)
    torch.manual_seed(1)
    out.backward(torch.randn(out.shape, dtype=out.dtype))
    return out, [x.grad, *(p.grad for p in module.parameters())], module.state_dict()


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s.name)
def test_spelling_becomes_one_call_with_the_same_values_and_gradients(spelling: Spelling) -> None:
    import torch

    result = apply(spelling.text)
    assert isinstance(result, Applied), result
    new = result.files["model.py"]
    assert new.count("scaled_dot_product_attention(") == 1
    assert spelling.expect in new
    old_out, old_grads, old_state = run(spelling.text, spelling.make)
    new_out, new_grads, new_state = run(new, spelling.make)
    torch.testing.assert_close(new_out, old_out, rtol=1e-5, atol=1e-5)
    for before, after in zip(old_grads, new_grads, strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert {k: v.shape for k, v in old_state.items()} == {k: v.shape for k, v in new_state.items()}


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s.name)
def test_second_application_declines(spelling: Spelling) -> None:
    first = apply(spelling.text)
    assert isinstance(first, Applied)
    second = apply(first.files["model.py"])
    assert isinstance(second, Declined)
    assert "already" in second.reason


def test_diff_is_minimal_and_keeps_comments() -> None:
    text = SPELLINGS[0].text
    result = apply(text)
    assert isinstance(result, Applied)
    old, new = text.splitlines(), result.files["model.py"].splitlines()
    assert len(old) - len(new) == 3, result.files["model.py"]
    assert [line for line in new if line not in old] == [
        "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True) "
        "# (B, nh, T, T) x (B, nh, T, hs) -> (B, nh, T, hs)"
    ]
    assert (
        "        # causal self-attention; Self-attend: (B, nh, T, hs)" in result.files["model.py"]
    )


def test_buffer_of_the_mask_stays_for_checkpoints() -> None:
    result = apply(SPELLINGS[0].text)
    assert isinstance(result, Applied)
    assert 'self.register_buffer("bias"' in result.files["model.py"]


def test_local_mask_that_nothing_else_reads_goes() -> None:
    result = apply(next(s for s in SPELLINGS if s.name == "local-triu").text)
    assert isinstance(result, Applied)
    assert "torch.triu" not in result.files["model.py"]


def test_import_is_added_after_the_imports_there() -> None:
    text = '''"""Doc."""

from __future__ import annotations

from math import sqrt

from torch.nn import Module


class A(Module):
    def forward(self, q, k, v):
        w = (q @ k.transpose(-2, -1) / sqrt(k.size(-1))).softmax(dim=-1)
        return w @ v
'''
    result = apply(text)
    assert isinstance(result, Applied)
    new = result.files["model.py"]
    assert "from torch.nn import Module\nimport torch.nn.functional as F\n" in new
    assert "return F.scaled_dot_product_attention(q, k, v)" in new


# Look-alikes: one change to an attention that fits makes it another one.

PLAIN = """
class Attention(nn.Module):
    def __init__(self, dim, n_head, dropout=0.1):
        super().__init__()
        self.n_head = n_head
        self.head_dim = dim // n_head
        self.qkv = nn.Linear(dim, 3 * dim)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x, bias=None, cache=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        k = k.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        v = v.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        att = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        return y.transpose(1, 2).reshape(B, T, C)
""".replace(", cache=None", "")

MASK = '        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n'
SOFTMAX = "        att = F.softmax(att, dim=-1)\n"
SCALE = "math.sqrt(self.head_dim)"
PRODUCT = "        y = att @ v\n"
BUFFER = "torch.tril(torch.ones(64, 64))"

LOOK_ALIKES = [
    ("bias", MASK, "        att = att + bias\n" + MASK, r":24: `bias` is added to the scores"),
    ("relative-position", MASK, MASK + "        att = att + self.rel[:T, :T]\n", "self.rel"),
    ("alibi", MASK, "        att = att + self.slopes * torch.arange(T)\n" + MASK, "slopes"),
    ("window", BUFFER, "torch.tril(torch.ones(64, 64)).triu(-16)", "not proven to be causal"),
    (
        "window-xor",
        BUFFER,
        "torch.tril(torch.ones(64, 64)) - torch.tril(torch.ones(64, 64), -8)",
        "not proven to be causal",
    ),
    ("diagonal", BUFFER, "torch.tril(torch.ones(64, 64), diagonal=1)", "not proven to be causal"),
    ("strict", BUFFER, "torch.tril(torch.ones(64, 64), -1)", "not proven to be causal"),
    (
        "padding-mask",
        MASK,
        '        att = att.masked_fill(bias == 0, float("-inf"))\n',
        "`bias == 0` is the mask",
    ),
    ("two-masks", MASK, MASK + '        att = att.masked_fill(bias, float("-inf"))\n', "`bias`"),
    ("conditional-mask", MASK, "        if bias is not None:\n    " + MASK, "straight line"),
    ("offset", "[:, :, :T, :T]", "[:, :, 4 : T + 4, :T]", "not proven to be causal"),
    ("finite-mask", 'float("-inf")', "-1e4", "not surely minus infinity"),
    ("inverted", "== 0", "== 1", "not proven to be causal"),
    ("scale-of-width", SCALE, "math.sqrt(C)", "not provably 1/sqrt"),
    ("scale-constant", SCALE, "8.0", "not provably 1/sqrt"),
    ("scale-twice", SCALE, "math.sqrt(2 * self.head_dim)", "not provably 1/sqrt"),
    ("scale-unrooted", SCALE, "self.head_dim", "another scale"),
    ("no-scale", " / " + SCALE, "", "no scale"),
    ("temperature", SCALE, SCALE + " / self.temperature", "not provably 1/sqrt"),
    ("learned-scale", SCALE, "self.scale.exp()", "not provably 1/sqrt"),
    ("layer-scale", SCALE, "(" + SCALE + " * self.layer_index)", "not provably 1/sqrt"),
    ("dropout-module", SOFTMAX, SOFTMAX + "        att = self.drop(att)\n", "dropout"),
    (
        "dropout-function",
        SOFTMAX,
        SOFTMAX + "        att = F.dropout(att, 0.1, self.training)\n",
        "dropout",
    ),
    ("softcap", MASK, "        att = 50.0 * torch.tanh(att / 50.0)\n" + MASK, "tanh"),
    ("clamp", MASK, "        att = att.clamp(-50, 50)\n" + MASK, "clamp"),
    ("talking-heads", MASK, "        att = self.talk(att)\n" + MASK, "talk"),
    (
        "talking-heads-after",
        SOFTMAX,
        SOFTMAX + "        att = self.talk(att)\n",
        "not just multiplied",
    ),
    (
        "renormalised",
        SOFTMAX,
        SOFTMAX + "        att = att / att.sum(-1, keepdim=True)\n",
        "not just multiplied",
    ),
    ("other-dim", SOFTMAX, "        att = F.softmax(att, dim=-2)\n", "last dimension"),
    ("heads-dim", SOFTMAX, "        att = F.softmax(att, dim=1)\n", "last dimension"),
    ("no-dim", SOFTMAX, "        att = F.softmax(att)\n", "last dimension"),
    (
        "weights-returned",
        "return y.transpose(1, 2).reshape(B, T, C)",
        "return y, att",
        "used outside",
    ),
    ("weights-kept", PRODUCT, PRODUCT + "        self.last_attention = att\n", "used outside"),
    ("scores-logged", MASK, "        self.peak = att.max()\n" + MASK, "used outside"),
    ("log-softmax", "F.softmax", "F.log_softmax", "no softmax attention"),
    ("sparse", SOFTMAX, "        att = sparsemax(att, dim=-1)\n", "no softmax attention"),
    ("gated-values", PRODUCT, "        y = (att * self.gate) @ v\n", "not just multiplied"),
    (
        "query-scaled-in-place",
        "        att = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)\n",
        "        q *= self.head_dim ** -0.5\n        att = q @ k.transpose(-2, -1)\n",
        "in place",
    ),
    (
        "mask-edited",
        "    def forward",
        "    def narrow(self):\n        self.mask[0, 0, :8] = 0\n\n    def forward",
        "not proven to be causal",
    ),
    (
        "mask-zeroed",
        "    def forward",
        "    def narrow(self):\n        nn.init.zeros_(self.mask)\n\n    def forward",
        "not proven to be causal",
    ),
    ("query-changed", MASK, MASK + "        q = F.relu(q)\n", "`q` is changed in between"),
    (
        "longer-keys",
        "        att = q @",
        "        k = torch.cat([self.mem, k], dim=2)\n        att = q @",
        "keys longer",
    ),
    ("cache", "bias=None", "past_key_value=None", "keys longer"),
    (
        "keys-not-transposed",
        "k.transpose(-2, -1)",
        "k.transpose(1, 2)",
        "not surely the transposed",
    ),
    ("softmax-in-half", "dim=-1)\n        y", "dim=-1, dtype=torch.float16)\n        y", "float16"),
    ("upcast-kept", "dim=-1)\n        y", "dim=-1, dtype=torch.float32)\n        y", "dtype"),
    (
        "mask-overwritten",
        "        self.drop =",
        "        self.mask = None\n        self.drop =",
        "not proven to be causal",
    ),
    (
        "in-loop",
        PRODUCT,
        "        for _ in range(2):\n            y = F.softmax(q @ k.mT / "
        "math.sqrt(self.head_dim), dim=-1) @ v\n",
        "inside a loop",
    ),
]


def look_alike(old: str, new: str) -> str:
    assert PLAIN.count(old) >= 1, old
    return HEADER + "\n" + PLAIN.replace(old, new, 1)


def test_the_plain_form_of_the_look_alikes_fits() -> None:
    result = apply(HEADER + "\n" + PLAIN)
    assert isinstance(result, Applied)
    assert "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)" in result.files["model.py"]


@pytest.mark.parametrize(
    ("old", "new", "reason"), [c[1:] for c in LOOK_ALIKES], ids=[c[0] for c in LOOK_ALIKES]
)
def test_look_alike_declines_with_a_place(old: str, new: str, reason: str) -> None:
    import re

    text = look_alike(old, new)
    compile(text, "model.py", "exec")
    result = apply(text)
    assert isinstance(result, Declined), copy.copy(result.files["model.py"])
    assert re.match(r"model\.py:\d+: ", result.reason), result.reason
    assert re.search(reason, result.reason), result.reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("grads = torch.autograd.grad(loss, x, create_graph=True)\n", "differentiates twice"),
        ("torch.use_deterministic_algorithms(True)\n", "deterministic"),
    ],
)
def test_what_the_rest_of_the_job_needs_declines(line: str, reason: str) -> None:
    result = apply(HEADER + "\n" + PLAIN, "import torch\n\n" + line)
    assert isinstance(result, Declined)
    assert result.reason.startswith("model1.py:3: ")
    assert reason in result.reason


@pytest.mark.parametrize("text", ["def f(:\n", "x = \0", "print 'x'\n", "\tx\n y\n"])
def test_file_that_does_not_parse_declines(text: str) -> None:
    result = apply(text)
    assert isinstance(result, Declined)
    assert "does not parse" in result.reason


@pytest.mark.parametrize("text", ["", "# nothing\n", "import torch\n"])
def test_nothing_to_find_declines(text: str) -> None:
    assert isinstance(apply(text), Declined)


def test_no_files_decline() -> None:
    assert isinstance(SdpaAttention().apply({}), Declined)


def test_one_fits_and_another_is_left_with_its_reason() -> None:
    other = PLAIN.replace("class Attention", "class Biased").replace(
        MASK, "        att = att + bias\n"
    )
    result = apply(HEADER + "\n" + PLAIN + "\n" + other)
    assert isinstance(result, Applied)
    assert "att = att + bias" in result.files["model.py"]
    assert any("(left as it is)" in note for note in result.notes)


def test_a_chain_that_doubles_with_every_line_ends_in_time() -> None:
    lines = "\n".join("        a = a * a + a" for _ in range(40))
    text = HEADER + (
        "\n\nclass A(nn.Module):\n    def forward(self, q, k, v):\n        a = q @ k.mT\n"
        f"{lines}\n        return F.softmax(a, dim=-1) @ v\n"
    )
    assert isinstance(apply(text), Declined)
