"""Ignite, whose metric is reduced over all ranks, and an evaluation that rank 0 alone runs."""

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import TensorDataset


def training(local_rank: int) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(128, 6, generator=torch.Generator().manual_seed(8))
    labels = inputs[:, :3].argmax(1)
    train_loader = idist.auto_dataloader(TensorDataset(inputs[:96], labels[:96]), batch_size=16, shuffle=True)
    eval_loader = idist.auto_dataloader(TensorDataset(inputs[96:], labels[96:]), batch_size=16)
    model = idist.auto_model(nn.Linear(6, 3))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))

    def step(engine, batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    def predict(engine, batch):
        with torch.no_grad():
            return model.module(batch[0]), batch[1]

    trainer, evaluator = Engine(step), Engine(predict)
    Accuracy().attach(evaluator, "accuracy")

    @trainer.on(Events.EPOCH_STARTED)
    def tell_the_epoch(engine):
        train_loader.sampler.set_epoch(engine.state.epoch)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        if idist.get_rank() == 0:
            evaluator.run(eval_loader)  # expect: DD303 ranks 0 fix: idist.get_rank

    trainer.run(train_loader, max_epochs=3)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
