"""A pipeline of sampling adapters, one after another: the next-token distribution before and after each."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.parameters import OFF, ORDER, SamplingParams
from metagen.generators.engine import Engine, EvaluateRequest
from metagen.generators.watch import wait_for, watch_evaluation
from metagen.sequence import Sequence

#: Letters of a value.
LETTERS: Final = 28


@dataclass(frozen=True, eq=False)
class Stage:
    """The distribution behind an adapter. adapter: such as `top_p=0.9`; empty for the model. p: [V], sums to 1."""

    adapter: str
    p: NDArray[np.float64]

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return int((self.p > 0).sum())

    @property
    def entropy(self) -> float:
        """In bits."""
        p = self.p[self.p > 0]
        return float(abs((p * np.log2(p)).sum()))

    def cut(self, before: Stage) -> float:
        """The probability that the adapter before it gave to what this one cuts off."""
        return float(before.p[self.p == 0].sum())


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What a model would draw its next token from, behind each adapter in use.

    tokens: the text of each of the V tokens. stages: the model's own distribution, then one for each adapter.
    """

    tokens: tuple[str, ...]
    stages: tuple[Stage, ...]

    def best(self, most: int) -> list[int]:
        """The ids that are the most probable to the model, lower ids first among equals; in place of the least, such as
        the last stage gives more.
        """
        late = self.stages[-1].p
        first, last = (np.argsort(-p, kind="stable").tolist() for p in (self.stages[0].p, late))
        shown: list[int] = first[:most]
        risen = [i for i in last[:most] if i not in shown][: most // 3]
        for place, token in zip(range(len(shown) - 1, -1, -1), risen, strict=False):
            if late[token] > late[shown[place]]:
                shown[place] = token
        return shown


def pipeline(engine: Engine, prefix: Sequence, params: SamplingParams) -> Pipeline:
    """`apipeline` for scripts and notebooks."""
    return wait_for(apipeline(engine, prefix, params))


async def apipeline(engine: Engine, prefix: Sequence, params: SamplingParams) -> Pipeline:
    """The pipeline of `params` behind a prefix, whose completion so far counts for what looks at it.

    Raises UnsupportedError for an engine that does not read adapted distributions over its whole vocabulary.
    """
    size, decode = getattr(engine, "vocabulary", None), getattr(engine, "decode", None)
    ids, head = engine.render(prefix), engine.render(Sequence(prefix.prompt))
    if size is None or decode is None or ids is None or head is None:
        raise UnsupportedError(
            f"{engine!r} does not tell its whole distribution; use an engine that does, such as TorchEngine"
        )
    steps = _steps(params)
    labels = tuple(range(size))
    requests = [
        EvaluateRequest(ids, (len(ids) - 1,), labels, params=so_far, start=min(len(head), len(ids)))
        for _, so_far in steps
    ]
    answers = await watch_evaluation(engine, requests)
    stages = [
        Stage(name, np.exp(np.array(answer.values[0])))
        for (name, _), answer in zip(steps, answers, strict=True)
    ]
    return Pipeline(tuple(decode([i]) for i in labels), tuple(stages))


def _steps(params: SamplingParams) -> list[tuple[str, SamplingParams | None]]:
    """The name of each adapter in use, and the parameters up to it; None is the raw model."""
    used = [name for name in ORDER if getattr(params, name) != OFF[name]]
    # Where a completion ends says which tokens have to wait.
    so_far = SamplingParams(
        max_tokens=params.max_tokens, stop_token_ids=params.stop_token_ids, ignore_eos=params.ignore_eos
    )
    steps: list[tuple[str, SamplingParams | None]] = [("", None)]
    for name in used:
        so_far = so_far.replace(**{name: getattr(params, name)})
        steps.append((f"{name}={_short(getattr(params, name))}", so_far))
    return steps


def _short(value: object) -> str:
    words = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, Grammar):
        words = f"{value.kind} {value.source}"
    return words if len(words) <= LETTERS else words[: LETTERS - 1] + "…"


def check_names(names: abc.Sequence[str]) -> None:
    """InputError for the name of a parameter that is no adapter."""
    if other := [name for name in names if name not in ORDER]:
        near = get_close_matches(other[0], ORDER, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"{other[0]!r} is no adapter of the next-token distribution; expected some of {', '.join(ORDER)}{meant}"
        )
