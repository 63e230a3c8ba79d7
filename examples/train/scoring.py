"""What a reward model in training says of solutions, many at once."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import tokenizer as tokenizers_
from llama import Llama
from loop import pad
from pools import Solution
from tokenizer import NEGATIVE, OUTCOME, POSITIVE, STEP

ROWS = 512


@torch.inference_mode()
def scores(
    model: Llama, tokenizer: Tokenizer, solutions: list[Solution], outcome: bool = False
) -> list[list[float]]:
    """The probability of being right at each tag of each solution (one for an outcome model)."""
    model = model.to(torch.bfloat16).eval()
    tag = OUTCOME if outcome else STEP
    rows, tags = [], []
    for s in solutions:
        pieces = tokenizers_.encode(tokenizer, [s.prompt, *s.steps])
        ids, places = [tokenizers_.BOS, *pieces[0]], []
        for piece in pieces[1:]:
            ids += piece
            if not outcome:
                ids.append(tag)
                places.append(len(ids) - 1)
        if outcome:
            ids.append(tag)
            places.append(len(ids) - 1)
        rows.append(np.array(ids))
        tags.append(places)
    found: list[list[float]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), ROWS):
        batch = order[start : start + ROWS]
        hidden = model.hidden(torch.from_numpy(pad([rows[i] for i in batch])))
        where = [(r, t) for r, i in enumerate(batch) for t in tags[i]]
        if not where:
            continue
        r, t = map(list, zip(*where, strict=True))
        pair = F.linear(hidden[r, t], model.model.embed_tokens.weight[[POSITIVE, NEGATIVE]]).float()
        for row_, p in zip(r, torch.sigmoid(pair[:, 0] - pair[:, 1]).tolist(), strict=True):
            found[batch[row_]].append(p)
    return found
