"""The task: the text that every Python carries, byte by byte, and a small transformer that predicts it.

Nothing here knows of ranks.
"""

from __future__ import annotations

import pydoc_data.topics
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

CONTEXT = 64  # bytes that the model sees before it predicts the next
WIDTH = 32  # of the model; a multiple of HEADS
HEADS = 4
LAYERS = 1
HELD_OUT = 0.05  # share of the text that training never sees


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Consecutive pieces of a text as bytes: CONTEXT of them, and the same moved on by one as the target."""

    def __init__(self, text: bytes) -> None:
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * CONTEXT
        piece = self.bytes[start : start + CONTEXT + 1]
        return piece[:-1], piece[1:]


def read_text() -> tuple[Text, Text]:
    """Python's own reference as training text and held-out text; 466 kB of English, no download."""
    text = "\n".join(pydoc_data.topics.topics.values()).encode()
    held_out = int(len(text) * HELD_OUT)
    return Text(text[:-held_out]), Text(text[-held_out:])


class Block(nn.Module):
    """One transformer layer: causal attention, then a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.project_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.project_out = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.project_in(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return cast(Tensor, x + self.feed_forward(x))


class ByteTransformer(nn.Module):
    """Predicts each next byte from the bytes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, inputs: Tensor) -> Tensor:
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        return cast(Tensor, self.head(self.blocks(self.byte(inputs) + self.position(positions))))
