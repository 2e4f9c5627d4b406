"""Lightning, as its guides have it: a module, two loaders, a checkpoint, metrics that are reduced."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.network(inputs), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        inputs, targets = batch
        self.log("val_loss", nn.functional.mse_loss(self.network(inputs), targets), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9),
        }


def loader(samples: int, shuffle: bool) -> DataLoader:
    generator = torch.Generator().manual_seed(samples)
    inputs = torch.randn(samples, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=shuffle)


def main() -> None:
    L.seed_everything(1, workers=True)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(dirpath="checkpoints", save_last=True), EarlyStopping(monitor="val_loss")],
    )
    trainer.fit(Regression(), loader(480, True), loader(160, False))


if __name__ == "__main__":
    main()
