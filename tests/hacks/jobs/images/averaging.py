"""Averaged weights: a copy of a model that follows it slowly."""

import copy

import torch


class Average:
    """`module` holds the running average of a model's weights and a copy of its buffers."""

    def __init__(self, model, decay):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        """One step towards the model as it is now."""
        for mean, parameter in zip(self.module.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter, 1.0 - self.decay)
        for mean, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            mean.copy_(buffer)
