"""The work that is timed: a small transformer on random bytes. Runs inside the ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from ddpdoctor.bench.setting import HEADS, Setting

VOCABULARY = 256
SAMPLES = 4096
"""Of one pass; nobody learns anything from them."""


def random_bytes(context: int) -> TensorDataset:
    """Samples as text would be cut into: bytes, and the same moved on by one."""
    drawn = torch.randint(VOCABULARY, (SAMPLES, context + 1), generator=torch.Generator().manual_seed(0))
    return TensorDataset(drawn[:, :-1], drawn[:, 1:])


class Transformer(nn.Module):
    """Predicts each next byte."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.byte = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, HEADS, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(setting.layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        length = inputs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=inputs.device)
        hidden = self.byte(inputs)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())
