"""The loss that progress is told with. One on a GPU is copied beside the training, which never waits for it."""

from __future__ import annotations

from typing import Any


class LatestLoss:
    """The newest loss of a backward that has come from its device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.value: float | None = None
        self._page: Any = None
        """Memory that a GPU writes to by itself."""
        self._sent: tuple[Any, float] | None = None
        """The event that follows the copy, and what the loss was scaled by."""

    def copy(self, loss: Any, scale: float) -> None:
        """Let the GPU copy a loss of one number behind the work that it has been given."""
        torch = self._torch
        if self._page is None:
            self._page = torch.empty((), dtype=torch.float64, pin_memory=True)
        with torch.cuda.device(loss.device):
            self._page.copy_(loss.reshape(()), non_blocking=True)
            self._sent = torch.cuda.Event(), scale
            self._sent[0].record()

    def take(self) -> float | None:
        """The value that has come since the last call, None where none has or it is not finite."""
        value, self.value = self.value, None
        if self._sent is not None and self._sent[0].query():
            value, self._sent = float(self._page) / self._sent[1], None
            value = value if abs(value) < float("inf") else None
        return value

    @property
    def is_wanted(self) -> bool:
        """Whether no loss is on its way, whose page another one would overwrite."""
        return self._sent is None
