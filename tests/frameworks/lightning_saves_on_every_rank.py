"""A LightningModule that writes its weights by torch.save after each validation, on every rank."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 2), nn.Linear(2, 8)

    def training_step(self, batch, index):
        (inputs,) = batch
        return nn.functional.mse_loss(self.decoder(self.encoder(inputs)), inputs)

    def validation_step(self, batch, index):
        (inputs,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(inputs)), inputs)
        self.log("val_loss", loss, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        torch.save(self.state_dict(), "autoencoder.pt")  # expect: DD402 fix: is_global_zero

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    L.seed_everything(2)
    inputs = torch.randn(480, 8, generator=torch.Generator().manual_seed(2))
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(
        Autoencoder(),
        DataLoader(TensorDataset(inputs[:400]), batch_size=4, shuffle=True),
        DataLoader(TensorDataset(inputs[400:]), batch_size=4),
    )


if __name__ == "__main__":
    main()
