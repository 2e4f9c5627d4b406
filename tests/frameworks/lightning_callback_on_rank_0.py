"""A callback of the user's that saves through the Trainer on rank 0 alone, where every rank must take part."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Keep(L.Callback):
    def on_train_epoch_end(self, trainer, module) -> None:
        if trainer.is_global_zero:
            trainer.save_checkpoint("kept.ckpt")  # expect: DD303 ranks 0 fix: trainer.save_checkpoint


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, index):
        inputs, targets = batch
        return nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    L.seed_everything(1)
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = DataLoader(TensorDataset(inputs, inputs.mean(1, keepdim=True)), batch_size=8, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[Keep()],
    )
    trainer.fit(Module(), data)


if __name__ == "__main__":
    main()
