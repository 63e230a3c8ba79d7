"""What a model directory ends in: logits over the vocabulary, or a few numbers that score.

The weights say which. A *language head* is `lm_head`, or the embedding where the two are tied. Heads that score:

- `score.weight` (and `.bias`): one linear map. transformers' …ForSequenceClassification (no bias; a scalar reward has
  one row) and …ForTokenClassification (with bias; PRMs trained by TRL have two rows).
- `score.0`, `score.2`: two linear maps with a ReLU between them. Qwen2ForRewardModel (Qwen2.5-Math-RM, one row) and
  Qwen2ForProcessRewardModel (Qwen2.5-Math-PRM, two rows).
- `v_head.summary`: the value head of TRL's AutoModelForCausalLMWithValueHead, one row; Skywork-o1-Open-PRM
  (Qwen2ForPrmModel) has it too. A language head beside it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F

from metagen.errors import ModelError
from metagen.generators.torch.models.checkpoint import LlamaConfig, Weights
from metagen.generators.torch.models.linear import Linear, dense

LANGUAGE = "lm_head"
#: Where each kind of scoring head keeps its last map.
SCORING = ("v_head.summary", "score.2", "score")


class Head(Protocol):
    """name: of its weights. outputs: how many numbers it gives, if it scores; None: logits over the vocabulary."""

    @property
    def name(self) -> str: ...

    @property
    def outputs(self) -> int | None: ...

    def __call__(self, x: Tensor) -> Tensor:
        """float32 [n, outputs or vocab] from normed hidden states [n, width]."""
        ...


@dataclass(frozen=True, slots=True)
class LanguageHead:
    """Logits over the vocabulary."""

    map: Linear
    name: str = LANGUAGE
    outputs: None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.map(x).float()


@dataclass(frozen=True, slots=True)
class ScoringHead:
    """A linear map, or several with ReLUs between them, in float32: they are small, and scores lie close together."""

    name: str
    maps: tuple[tuple[Tensor, Tensor | None], ...]

    @property
    def outputs(self) -> int:
        return len(self.maps[-1][0])

    def __call__(self, x: Tensor) -> Tensor:
        x = x.float()
        for i, (weight, bias) in enumerate(self.maps):
            x = F.linear(F.relu(x) if i else x, weight, bias)
        return x


def read_head(weights: Weights, config: LlamaConfig, embedding: Tensor) -> Head:
    """The head of a directory, which is `embedding` [vocab, width] if the two are tied.

    ModelError if the weights hold none, or not the one that the architecture has.
    """
    kind = next((kind for kind in SCORING if f"{kind}.weight" in weights), LANGUAGE)
    if kind == LANGUAGE and config.scores:
        raise ModelError(
            f"{weights.directory}: a {config.architecture} has a head that scores, but the weights hold none of "
            f"{', '.join(f'{kind}.weight' for kind in SCORING)}; use the weights that were saved with this config.json"
        )
    if kind != LANGUAGE:
        weights.drop("lm_head.weight")
        below = (_linear(weights, "score.0", config.width, config.width),) if kind == "score.2" else ()
        return ScoringHead(
            kind, (*below, _linear(weights, kind, weights.rows(f"{kind}.weight"), config.width))
        )
    if config.tied:
        weights.drop("lm_head.weight")
        return LanguageHead(dense(embedding))
    return LanguageHead(dense(weights.take("lm_head.weight", config.vocab, config.width)))


def _linear(weights: Weights, name: str, rows: int, columns: int) -> tuple[Tensor, Tensor | None]:
    bias = weights.maybe(f"{name}.bias", rows)
    return weights.take(f"{name}.weight", rows, columns).float(), None if bias is None else bias.float()
