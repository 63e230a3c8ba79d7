"""A LoRA adapter that judges solutions of word problems: each step as it is written (PRM), or all at the end (ORM).

    python examples/train/words/rewards.py --rollouts rollouts.jsonl --into rewards/      # call again to go on

After each step stands a tag, and there the model says + or -: p(+) / (p(+) + p(-)) is to be the value that
`rollouts.py` found. Behind a whole solution stands another tag, for whether its answer is right. One adapter learns
both.
"""

from __future__ import annotations

import json
import random
from typing import Any

import torch
import transformers
from torch import Tensor
from tuning import Row, ask, base, encode, fit, hidden_states, parse

#: Tokens of SmolLM2's vocabulary that no solution has.
STEP, WHOLE = "<file_sep>", "<jupyter_output>"
RIGHT, WRONG = "+", "-"
UNREAD = -1.0
#: What the adapter's configuration says of how it is read.
ENTRIES = {
    "metagen": {"kind": "prm", "tag": STEP, "positive": RIGHT, "negative": WRONG, "delimiter": "\n"},
    "metagen_orm": {"kind": "orm", "tag": WHOLE, "positive": RIGHT, "negative": WRONG},
}
#: One problem in so many is kept for validation.
HELD_OUT = 20


def rows_of(tokenizer: Any, records: list[dict[str, Any]]) -> list[Row]:
    """input_ids, and values: at a tag the value of what stands before it, elsewhere `UNREAD`."""
    step, whole = (tokenizer.convert_tokens_to_ids(tag) for tag in (STEP, WHOLE))
    rows = []
    for record in records:
        prompt = ask(tokenizer, record["question"])
        for solution in record["solutions"]:
            ids, values = list(prompt), [UNREAD] * len(prompt)
            for line, value in zip(
                solution["text"].splitlines(keepends=True), solution["values"], strict=True
            ):
                own = encode(tokenizer, line)
                ids += [*own, step]
                values += [UNREAD] * len(own) + [value]
            rows.append({"input_ids": ids, "values": values})
            ids = [*prompt, *encode(tokenizer, solution["text"]), whole]
            rows.append({"input_ids": ids, "values": [UNREAD] * (len(ids) - 1) + [solution["values"][-1]]})
    return rows


class RewardTrainer(transformers.Trainer):
    """Binary cross-entropy with the values, of the two labels' logits alone. labels: ids of right and wrong."""

    labels: tuple[int, int]

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        values = inputs.pop("values")
        states, output = hidden_states(model, inputs)
        right, wrong = output[list(self.labels)].float()
        logits = states[values >= 0].float() @ (right - wrong)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, values[values >= 0].float())
        return (loss, {"logits": logits}) if return_outputs else loss


def main() -> None:
    args = parse(__doc__, rollouts={"help": "what rollouts.py wrote"})
    model, tokenizer = base()
    RewardTrainer.labels = (
        tokenizer.convert_tokens_to_ids(RIGHT),
        tokenizer.convert_tokens_to_ids(WRONG),
    )
    records = [json.loads(line) for line in args.rollouts.read_text(encoding="utf-8").splitlines()]
    random.Random(args.seed).shuffle(records)
    kept = max(1, len(records) // HELD_OUT)
    parts = {"train": rows_of(tokenizer, records[kept:]), "validation": rows_of(tokenizer, records[:kept])}
    path = fit(RewardTrainer, model, parts, {"input_ids": 0, "values": UNREAD}, args) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ENTRIES, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
