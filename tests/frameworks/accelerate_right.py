"""accelerate with accumulation, a scheduler, an evaluation that gathers what was predicted, and saved states."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(11)
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(130, 5, generator=generator)
    labels = inputs[:, :3].argmax(1)
    training = DataLoader(TensorDataset(inputs[:96], labels[:96]), batch_size=4, shuffle=True)
    held_out = DataLoader(TensorDataset(inputs[96:], labels[96:]), batch_size=4)
    model = nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    model, optimizer, training, held_out, scheduler = accelerator.prepare(
        model, optimizer, training, held_out, scheduler
    )
    for epoch in range(2):
        model.train()
        for batch, targets in training:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        right = total = 0
        for batch, targets in held_out:
            with torch.no_grad():
                predicted = model(batch).argmax(-1)
            predicted, targets = accelerator.gather_for_metrics((predicted, targets))
            right += int((predicted == targets).sum())
            total += len(targets)
        accelerator.print(f"epoch {epoch}: {right}/{total}")
        accelerator.save_state(f"states/{epoch}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
