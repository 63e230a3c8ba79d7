"""A LoRA adapter that makes SmolLM2-135M solve word problems, one step a line.

    python examples/train/words/solver.py --data data/ --into solver/     # call again to go on after an interruption

Trained with `peft` and the Trainer of transformers on the questions of `data.py`, as a chat model is asked them (the model's
own chat template, the question alone). The loss is that of the solution's tokens. The lowest third of the layers stays as
it is, so that adapters of one family share it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch import Tensor

from data import Example, read
from metagen.generators.models import sources

#: Layers that are tuned: the upper two thirds of thirty.
LAYERS = list(range(10, 30))
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IGNORED = -100


def lora(rank: int) -> peft.LoraConfig:
    return peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=MATRICES, layers_to_transform=LAYERS, task_type="CAUSAL_LM",
    )  # fmt: skip


def base() -> tuple[transformers.PreTrainedModel, Any]:
    """SmolLM2-135M-Instruct in bfloat16, and its tokenizer."""
    directory = sources.fetch("smollm2-135m")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    return model, transformers.AutoTokenizer.from_pretrained(directory)


def asked(tokenizer: Any, question: str) -> str:
    """The text after which the solution begins."""
    turns = [{"role": "user", "content": question}]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return text


def encoded(tokenizer: Any, example: Example) -> dict[str, list[int]]:
    prompt = tokenizer(asked(tokenizer, example.question), add_special_tokens=False)["input_ids"]
    solution = tokenizer(example.solution + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + solution, "labels": [IGNORED] * len(prompt) + solution}


@dataclass(frozen=True)
class Padded:
    """Rows of one batch, padded on the right."""

    pad: int

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        width = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": self.pad, "labels": IGNORED}
        batch = {k: torch.tensor([row[k] + [v] * (width - len(row[k])) for row in rows]) for k, v in fill.items()}
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        return batch | {"attention_mask": (torch.arange(width) < lengths[:, None]).long()}


class SolutionTrainer(transformers.Trainer):
    """Computes logits where there is a label and nowhere else: a fifth of this model's work is its output matrix."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        inner = model.get_base_model() if isinstance(model, peft.PeftModel) else model
        hidden = inner.model(**inputs).last_hidden_state[:, :-1]
        known = labels[:, 1:] != IGNORED
        logits = inner.lm_head(hidden[known]).float()
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][known])
        return (loss, {"logits": logits}) if return_outputs else loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory that data.py made")
    parser.add_argument("--into", type=Path, required=True, help="checkpoints, and the adapter at the end")
    parser.add_argument("--longest", type=int, default=224, help="tokens of a question and its solution; longer ones are left out")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--steps", type=int, default=-1, help="instead of epochs")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model, tokenizer = base()
    rows = {name: [encoded(tokenizer, e) for e in read(args.data / f"{name}.jsonl")] for name in ("train", "validation")}
    rows = {name: [r for r in part if len(r["input_ids"]) <= args.longest] for name, part in rows.items()}
    print({name: (len(part), sum(len(r["input_ids"]) for r in part)) for name, part in rows.items()}, "rows and tokens")
    settings = transformers.TrainingArguments(
        output_dir=str(args.into / "checkpoints"), num_train_epochs=args.epochs, max_steps=args.steps, use_cpu=True,
        per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, train_sampling_strategy="group_by_length",
        learning_rate=args.rate, lr_scheduler_type="linear", warmup_steps=30, weight_decay=0.0, optim="adamw_torch",
        logging_steps=20, save_steps=50, save_total_limit=2, eval_strategy="steps", eval_steps=300, prediction_loss_only=True,
        seed=args.seed, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = SolutionTrainer(
        model=peft.get_peft_model(model, lora(args.rank)), args=settings, train_dataset=rows["train"],
        eval_dataset=rows["validation"], data_collator=Padded(tokenizer.pad_token_id or 0),
    )  # fmt: skip
    begun = transformers.trainer_utils.get_last_checkpoint(settings.output_dir) if (args.into / "checkpoints").is_dir() else None
    trainer.train(resume_from_checkpoint=begun)
    print(trainer.evaluate())
    trainer.model.to(torch.bfloat16).save_pretrained(args.into / "adapter")


if __name__ == "__main__":
    main()
