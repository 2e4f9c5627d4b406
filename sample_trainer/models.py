"""The models, small enough to train on a CPU. Nothing here knows of ranks."""

from __future__ import annotations

from typing import cast

import torch
from config import Config, Model
from data import Material
from torch import Tensor, nn
from torch.nn import functional


def create_model(config: Config, material: Material) -> nn.Module:
    """The model of a task, with the weights that the default random generator gives."""
    if config.data.task == "language":
        return ByteTransformer(config.model, config.data.context)
    if config.data.task == "classes":
        return TextClassifier(config.model, material.inputs, material.outputs)
    return DigitClassifier(config.model, material.outputs)


class Block(nn.Module):
    """One transformer layer: causal attention, then a feed-forward network."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.width
        self.heads = model.heads
        self.before_attention = nn.LayerNorm(width)
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        projected = self.project_in(self.before_attention(x))
        query, key, value = projected.view(batch, length, 3, self.heads, width // self.heads).permute(
            2, 0, 3, 1, 4
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.project_out(attended.transpose(1, 2).reshape(batch, length, width)))
        return cast(Tensor, x + self.dropout(self.feed_forward(x)))


class ByteTransformer(nn.Module):
    """Predicts each next byte from the bytes before it."""

    def __init__(self, model: Model, context: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, model.width)
        self.position = nn.Embedding(context, model.width)
        self.blocks = nn.Sequential(*(Block(model) for _ in range(model.layers)))
        self.head = nn.Sequential(nn.LayerNorm(model.width), nn.Linear(model.width, 256))
        self.checkpoint_activations = model.checkpoint_activations

    def forward(self, inputs: Tensor) -> Tensor:
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.byte(inputs) + self.position(positions)
        for block in self.blocks:
            if self.checkpoint_activations and self.training:
                # Keeps what goes in, and computes the rest again in backward. The reentrant variant would hide
                # the parameters from DDP, which has to see each of them once in the graph.
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return cast(Tensor, self.head(x))


class TextClassifier(nn.Module):
    """Says from the mean of its words what a passage is about."""

    def __init__(self, model: Model, words: int, classes: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, model.width, padding_idx=0)
        self.head = nn.Sequential(
            nn.LayerNorm(model.width), nn.Dropout(model.dropout), nn.Linear(model.width, classes)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        known = (inputs != 0).sum(1, keepdim=True).clamp(min=1)
        return cast(Tensor, self.head(self.word(inputs).sum(1) / known))


class DigitClassifier(nn.Module):
    """Two convolutions over an 8x8 image."""

    def __init__(self, model: Model, classes: int) -> None:
        super().__init__()
        width = model.width
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            _norm(model),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            _norm(model),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Dropout(model.dropout), nn.Linear(4 * width, classes))

    def forward(self, inputs: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.features(inputs).flatten(1)))


def _norm(model: Model) -> nn.Module:
    """Group normalisation looks at one sample; batch normalisation at those of its rank, unless it is synchronised."""
    return nn.BatchNorm2d(model.width) if model.norm == "batch" else nn.GroupNorm(model.heads, model.width)
