"""Lightning that was told to leave the samplers alone, and samplers that do not divide the data."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def training_step(self, batch, index):
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layer(inputs), labels)

    def validation_step(self, batch, index):
        inputs, labels = batch
        self.log("accuracy", (self.layer(inputs).argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Samples(L.LightningDataModule):
    def setup(self, stage=None) -> None:
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(128, 6, generator=generator)
        labels = inputs[:, :3].argmax(1)
        self.training = TensorDataset(inputs[:96], labels[:96])
        self.held_out = TensorDataset(inputs[96:], labels[96:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, batch_size=8, shuffle=True)  # expect: DD101

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.held_out, batch_size=8)


def main() -> None:
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,  # fix: use_distributed_sampler
    )
    trainer.fit(Classifier(), datamodule=Samples())


if __name__ == "__main__":
    main()
