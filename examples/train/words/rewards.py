"""A LoRA adapter that judges solutions of word problems: each step as it is written (PRM), or the whole at its end (ORM).

    python examples/train/words/rewards.py --rollouts rollouts.jsonl --into rewards/      # call again to go on

After each step stands a tag, and there the model says + or -: p(+) / (p(+) + p(-)) is to be the value that `rollouts.py`
found. Behind a whole solution stands another tag, for whether its answer is right. One adapter learns both.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch import Tensor

from solver import asked, base, lora

#: Tokens of SmolLM2's vocabulary that no solution has.
STEP, WHOLE = "<file_sep>", "<jupyter_output>"
RIGHT, WRONG = "+", "-"
UNREAD = -1.0
#: What the adapter's configuration says of how it is read.
ENTRIES = {
    "metagen": {"kind": "prm", "tag": STEP, "positive": RIGHT, "negative": WRONG, "delimiter": "\n"},
    "metagen_orm": {"kind": "orm", "tag": WHOLE, "positive": RIGHT, "negative": WRONG},
}


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def rows_of(tokenizer: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """input_ids, and values: at a tag the value of what stands before it, elsewhere `UNREAD`."""
    step, whole = (tokenizer.convert_tokens_to_ids(tag) for tag in (STEP, WHOLE))
    rows = []
    for record in records:
        prompt = encode(tokenizer, asked(tokenizer, record["question"]))
        for solution in record["solutions"]:
            ids, values = list(prompt), [UNREAD] * len(prompt)
            for line, value in zip(solution["text"].splitlines(keepends=True), solution["values"], strict=True):
                own = encode(tokenizer, line)
                ids += [*own, step]
                values += [UNREAD] * len(own) + [value]
            rows.append({"input_ids": ids, "values": values})
            ids = [*prompt, *encode(tokenizer, solution["text"]), whole]
            rows.append({"input_ids": ids, "values": [UNREAD] * (len(ids) - 1) + [solution["values"][-1]]})
    return rows


@dataclass(frozen=True)
class Padded:
    """Rows of one batch, padded on the right."""

    pad: int

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        width = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": self.pad, "values": UNREAD}
        batch = {k: torch.tensor([row[k] + [v] * (width - len(row[k])) for row in rows]) for k, v in fill.items()}
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        return batch | {"attention_mask": (torch.arange(width) < lengths[:, None]).long()}


class RewardTrainer(transformers.Trainer):
    """Binary cross-entropy with the values, of the two labels' logits alone."""

    labels: tuple[int, int]

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        values = inputs.pop("values")
        inner = model.get_base_model() if isinstance(model, peft.PeftModel) else model
        hidden = inner.model(**inputs).last_hidden_state[values >= 0]
        right, wrong = inner.lm_head.weight[list(self.labels)].float()
        logits = hidden.float() @ (right - wrong)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, values[values >= 0].float())
        return (loss, {"logits": logits}) if return_outputs else loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True, help="checkpoints, and the adapter at the end")
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--steps", type=int, default=-1, help="instead of epochs")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model, tokenizer = base()
    records = [json.loads(line) for line in args.rollouts.read_text(encoding="utf-8").splitlines()]
    random.Random(args.seed).shuffle(records)
    kept = max(1, len(records) // 20)
    parts = {"train": records[kept:], "validation": records[:kept]}
    rows = {name: [r for r in rows_of(tokenizer, part) if len(r["input_ids"]) <= args.longest] for name, part in parts.items()}
    print({name: (len(part), sum(len(r["input_ids"]) for r in part)) for name, part in rows.items()}, "rows and tokens")
    settings = transformers.TrainingArguments(
        output_dir=str(args.into / "checkpoints"), num_train_epochs=args.epochs, max_steps=args.steps, use_cpu=True,
        per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, train_sampling_strategy="group_by_length",
        learning_rate=args.rate, lr_scheduler_type="linear", warmup_steps=20, weight_decay=0.0, optim="adamw_torch",
        logging_steps=20, save_steps=50, save_total_limit=2, eval_strategy="steps", eval_steps=100, prediction_loss_only=True,
        remove_unused_columns=False, seed=args.seed, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = RewardTrainer(
        model=peft.get_peft_model(model, lora(args.rank)), args=settings, train_dataset=rows["train"],
        eval_dataset=rows["validation"], data_collator=Padded(tokenizer.pad_token_id or 0),
    )  # fmt: skip
    trainer.labels = (tokenizer.convert_tokens_to_ids(RIGHT), tokenizer.convert_tokens_to_ids(WRONG))
    begun = transformers.trainer_utils.get_last_checkpoint(settings.output_dir) if (args.into / "checkpoints").is_dir() else None
    trainer.train(resume_from_checkpoint=begun)
    print(trainer.evaluate())
    adapter = args.into / "adapter"
    trainer.model.to(torch.bfloat16).save_pretrained(adapter)
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ENTRIES, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
