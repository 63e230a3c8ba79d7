"""What the adapters of this directory share: their base, their prompts, and how they are trained.

Training is that of `peft` and of the Trainer of transformers, on two cores, in bfloat16 where a matrix of the base is
multiplied. Checkpoints are in `checkpoints/`; a script that is called again with the same settings goes
on from the last.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint

from metagen.generators.models import sources

BASE = "smollm2-135m"
#: Layers that are tuned: the upper two thirds of thirty. The others stay as they are in all adapters of the family.
LAYERS = list(range(10, 30))
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

Row = dict[str, list[Any]]


def base() -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct in bfloat16, and its tokenizer."""
    directory = sources.fetch(BASE)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, trust_remote_code=False
    )
    return model, transformers.AutoTokenizer.from_pretrained(directory, trust_remote_code=False)


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def ask(tokenizer: Any, question: str) -> list[int]:
    """The ids after which the solution begins: the question alone, as a chat model is asked it."""
    turns = [{"role": "user", "content": question}]
    return encode(tokenizer, tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


@dataclass(frozen=True)
class Padded:
    """Rows of one batch, padded on the right. fill: what stands behind a row, by column."""

    fill: Mapping[str, float]

    def __call__(self, rows: list[Row]) -> dict[str, Tensor]:
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        width = int(lengths.max())
        batch = {
            name: torch.tensor([row[name] + [value] * (width - len(row[name])) for row in rows])
            for name, value in self.fill.items()
        }
        return batch | {"attention_mask": (torch.arange(width) < lengths[:, None]).long()}


def hidden_states(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The last layer's states [rows, length, width], normed, and the output matrix [vocab, width]."""
    inner = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    return inner.model(**inputs).last_hidden_state, inner.lm_head.weight


def parse(description: str | None, **sources: dict[str, Any]) -> argparse.Namespace:
    """The command line. sources: options for what is learned from."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, options in sources.items():
        parser.add_argument(f"--{name}", **{"type": Path, "required": "default" not in options} | options)
    parser.add_argument("--into", type=Path, required=True, help="checkpoints, and the adapter at the end")
    parser.add_argument("--longest", type=int, default=224, help="tokens of a row; longer ones are left out")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--steps", type=int, default=-1, help="instead of epochs")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def hold_to(args: argparse.Namespace, checkpoints: Path) -> None:
    """Write the command line beside the checkpoints; exit where there are some of another one."""
    path, given = checkpoints / "settings.json", {name: str(value) for name, value in vars(args).items()}
    found = json.loads(path.read_text()) if path.exists() else given if not checkpoints.exists() else {}
    if changed := [f"--{name} {value}" for name, value in given.items() if found.get(name) != value]:
        raise SystemExit(
            f"{checkpoints} were not made with {' '.join(changed)}; give another --into, or delete them to begin again"
        )
    checkpoints.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(given))


def fit(
    trainer: type[transformers.Trainer], model: Any, parts: Mapping[str, list[Row]], fill: Mapping[str, float],
    args: argparse.Namespace,
) -> Path:  # fmt: skip
    """Train an adapter on `parts["train"]`, and save it. Returns its directory. model: a base, or one with an adapter
    that is trained further.
    """
    rows = {
        name: [row for row in part if len(row["input_ids"]) <= args.longest] for name, part in parts.items()
    }
    for name, part in rows.items():
        print(f"{name}: {len(part)} rows, {sum(len(row['input_ids']) for row in part)} tokens")
    checkpoints = args.into / "checkpoints"
    hold_to(args, checkpoints)
    settings = transformers.TrainingArguments(
        output_dir=str(checkpoints), num_train_epochs=args.epochs, max_steps=args.steps, use_cpu=True, seed=args.seed,
        per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, optim="adamw_torch",
        train_sampling_strategy="group_by_length", learning_rate=args.rate, lr_scheduler_type="linear", warmup_steps=30,
        weight_decay=0.0, logging_steps=10, save_steps=25, save_total_limit=2, eval_strategy="steps", eval_steps=300,
        prediction_loss_only=True, label_names=list(fill)[1:], remove_unused_columns=False, report_to=[],
        disable_tqdm=True,
    )  # fmt: skip
    config = peft.LoraConfig(
        r=args.rank, lora_alpha=2 * args.rank, target_modules=MATRICES, layers_to_transform=LAYERS,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    adapted = model if isinstance(model, peft.PeftModel) else peft.get_peft_model(model, config)
    made = trainer(
        model=adapted, args=settings, train_dataset=rows["train"],
        eval_dataset=rows["validation"], data_collator=Padded(fill),
    )  # fmt: skip
    made.train(resume_from_checkpoint=get_last_checkpoint(checkpoints) if checkpoints.is_dir() else None)
    print(made.evaluate())
    adapted.peft_config["default"].base_model_name_or_path = BASE
    adapted.to(torch.bfloat16).save_pretrained(args.into / "adapter")
    return Path(args.into / "adapter")
