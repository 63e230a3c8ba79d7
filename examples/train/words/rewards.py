"""A LoRA adapter that judges solutions of word problems: each step as it is written (PRM), or all at the end (ORM).

    python examples/train/words/rewards.py --rollouts rollouts.jsonl --into rewards/      # call again to go on

After each step stands a tag, and there the model says + or -: p(+) / (p(+) + p(-)) is to be the value that
`rollouts.py` found. Behind a whole solution stands another tag, for whether its answer is right. One adapter learns
both.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from typing import Any

import torch
import transformers
from torch import Tensor
from tuning import Row, ask, base, encode, fit, hidden_states, parse

#: Tokens of SmolLM2's vocabulary that no solution has.
STEP, WHOLE = "<file_sep>", "<jupyter_output>"
RIGHT, WRONG = "+", "-"
UNREAD = -1.0
#: Entries of the adapter's configuration: the layouts by which verifiers read it.
ENTRIES = {
    "metagen": {"kind": "prm", "tag": STEP, "positive": RIGHT, "negative": WRONG, "delimiter": "\n"},
    "metagen_orm": {"kind": "orm", "tag": WHOLE, "positive": RIGHT, "negative": WRONG},
}
#: One question in so many, its numbers apart, is kept for validation.
HELD_OUT = 20


def rows_of(tokenizer: Any, records: list[dict[str, Any]]) -> list[Row]:
    """input_ids; values: at a tag that of what stands before it, elsewhere `UNREAD`; weights: how often it came."""
    step, whole = (tokenizer.convert_tokens_to_ids(tag) for tag in (STEP, WHOLE))
    rows = []
    for record in records:
        prompt = ask(tokenizer, record["question"])
        for solution in record["solutions"]:
            ids, values, text = list(prompt), [UNREAD] * len(prompt), solution["text"]
            for line, value in zip(text.splitlines(keepends=True), solution["values"], strict=True):
                own = encode(tokenizer, line)
                ids += [*own, step]
                values += [UNREAD] * len(own) + [value]
            all_of_it = [*prompt, *encode(tokenizer, text), whole]
            outcome = [UNREAD] * (len(all_of_it) - 1) + solution["values"][-1:]
            for laid, found in ((ids, values), (all_of_it, outcome)):
                weights = [float(solution["count"])] * len(laid)
                rows.append({"input_ids": laid, "values": found, "weights": weights})
    return rows


def template(record: dict[str, Any]) -> str:
    """The question without its numbers: the same for one that is asked with others."""
    return re.sub(r"\d[\d.,]*", "#", record["question"])


class RewardTrainer(transformers.Trainer):
    """Binary cross-entropy with the values, of the two labels' logits alone. labels: ids of right and wrong."""

    labels: tuple[int, int]

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        values, weights = inputs.pop("values"), inputs.pop("weights")
        read = values >= 0
        states, output = hidden_states(model, inputs)
        right, wrong = output[list(self.labels)].float()
        logits = states[read].float() @ (right - wrong)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, values[read].float(), reduction="none"
        )
        loss = (losses * weights[read]).sum() / weights[read].sum()
        return (loss, {"logits": logits}) if return_outputs else loss


def main() -> None:
    args = parse(__doc__, rollouts={"help": "what rollouts.py wrote"})
    model, tokenizer = base()
    RewardTrainer.labels = (
        tokenizer.convert_tokens_to_ids(RIGHT),
        tokenizer.convert_tokens_to_ids(WRONG),
    )
    with (gzip.open if args.rollouts.suffix == ".gz" else open)(
        args.rollouts, "rt", encoding="utf-8"
    ) as file:
        records = [json.loads(line) for line in file]
    groups = sorted({template(record) for record in records})
    random.Random(args.seed).shuffle(groups)
    kept = set(groups[: max(1, len(groups) // HELD_OUT)])
    parts = {
        "train": rows_of(tokenizer, [record for record in records if template(record) not in kept]),
        "validation": rows_of(tokenizer, [record for record in records if template(record) in kept]),
    }
    fill = {"input_ids": 0, "values": UNREAD, "weights": 0.0}
    path = fit(RewardTrainer, model, parts, fill, args) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ENTRIES, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
