"""A callback that evaluates on the first process only: predictions are gathered from all of them."""

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Words(Dataset):
    def __init__(self, length: int) -> None:
        self.words = torch.randint(0, 40, (length, 6), generator=torch.Generator().manual_seed(length))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.words[index], "labels": self.words[index].sum() % 2}


class Evaluate(TrainerCallback):
    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero:
            self.trainer.evaluate()  # expect: DD303 ranks 0 fix: trainer.evaluate


def main() -> None:
    set_seed(17)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir="trained",
            num_train_epochs=2,
            per_device_train_batch_size=4,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        ),
        train_dataset=Words(48),
        eval_dataset=Words(24),
    )
    trainer.add_callback(Evaluate(trainer))
    trainer.train()


if __name__ == "__main__":
    main()
