"""A small GPT whose second half of each block is a mixture of experts."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * (x * scale)


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_head = args.n_head
        self.head_dim = args.n_embd // args.n_head
        self.qkv = nn.Linear(args.n_embd, 3 * args.n_embd, bias=False)
        self.proj = nn.Linear(args.n_embd, args.n_embd, bias=False)
        self.att_drop = nn.Dropout(args.dropout)
        self.out_drop = nn.Dropout(args.dropout)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        k = k.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        v = v.view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))
        att = att.masked_fill(~mask, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.att_drop(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.out_drop(self.proj(y))


class Expert(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.up = nn.Linear(args.n_embd, 4 * args.n_embd)
        self.down = nn.Linear(4 * args.n_embd, args.n_embd)

    def forward(self, x):
        h = self.up(x)
        h = h * torch.sigmoid(1.702 * h)
        return self.down(h)


class Experts(nn.Module):
    """Top-1 routing; each row of a batch has its own capacity and its own balance."""

    def __init__(self, args):
        super().__init__()
        self.capacity_factor = args.capacity_factor
        self.router = nn.Linear(args.n_embd, args.n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(args) for _ in range(args.n_experts)])
        self.drop = nn.Dropout(args.dropout)
        self.balance_loss = None
        self.z_loss = None

    def forward(self, x):
        T, E = x.size(1), len(self.experts)
        logits = self.router(x)
        probs = F.softmax(logits, dim=-1)
        weight, chosen = probs.max(dim=-1)
        one_hot = F.one_hot(chosen, E)
        capacity = math.ceil(self.capacity_factor * T / E)
        place = (one_hot.cumsum(dim=1) * one_hot).sum(dim=-1)
        fits = place <= capacity
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number) & fits
            y[mine] = expert(x[mine]) * weight[mine].unsqueeze(-1)
        share = one_hot.float().mean(dim=1)
        self.balance_loss = E * (share * probs.mean(dim=1)).sum(dim=-1).mean()
        self.z_loss = torch.logsumexp(logits, dim=-1).pow(2).mean()
        return self.drop(y)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.norm1 = RMSNorm(args.n_embd)
        self.attn = Attention(args)
        self.norm2 = RMSNorm(args.n_embd)
        self.mlp = Experts(args)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.balance_weight = args.balance_weight
        self.z_weight = args.z_weight
        self.tokens = nn.Embedding(args.vocab_size, args.n_embd)
        self.positions = nn.Embedding(args.block_size, args.n_embd)
        self.drop = nn.Dropout(args.dropout)
        self.blocks = nn.ModuleList([Block(args) for _ in range(args.n_layer)])
        self.norm = RMSNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, args.vocab_size, bias=False)
        self.apply(self._init)
        self.head.weight = self.tokens.weight

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids, targets):
        T = ids.size(1)
        x = self.tokens(ids) + self.positions(torch.arange(T, device=ids.device))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        if not self.training:
            return loss
        balance = sum(block.mlp.balance_loss for block in self.blocks)
        z = sum(block.mlp.z_loss for block in self.blocks)
        return loss + self.balance_weight * balance + self.z_weight * z
