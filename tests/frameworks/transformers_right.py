"""Hugging Face's Trainer: a tiny model from a configuration, evaluation and saves each epoch."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    """Made-up sentences: whether their first word is an even one."""

    def __init__(self, length: int, seed: int) -> None:
        self.words = torch.randint(0, 50, (length, 8), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict:
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones(8, dtype=torch.long), "labels": words[0] % 2}


def accuracy(predictions) -> dict:
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


def main() -> None:
    set_seed(17)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir="trained",
            num_train_epochs=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=4,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        ),
        train_dataset=Sentences(64, 1),
        eval_dataset=Sentences(27, 2),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.evaluate()
    trainer.save_model("trained/last")


if __name__ == "__main__":
    main()
