"""KL(π ‖ p) measured: the mean of log π(y) − log p(y) over samples y of a policy π whose probabilities are known.

For tilts token by token, other temperatures and adapters; best-of-n has no probabilities to read.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

import numpy as np

from metagen.errors import InputError
from metagen.generators.engine import Engine, SamplingParams
from metagen.generators.likelihood import likelihoods
from metagen.runs.curves.study import Floats
from metagen.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Law:
    """What a sequence was drawn from: an engine, and the settings of its sampling. None: the model as it is."""

    engine: Engine
    params: SamplingParams | None = None

    def logprobs(self, sequences: abc.Sequence[Sequence]) -> Floats:
        """The logarithm of the probability of each, in nats, [sequences].

        The end counts where a sequence ended by itself.
        """
        found = likelihoods(self.engine, sequences, entropies=False, params=self.params)
        return np.array([
            one.logprob + (one.end or 0.0) * (sequence.finish == "eos")
            for one, sequence in zip(found, sequences, strict=True)
        ])  # fmt: skip


def log_ratios(policy: Law, base: Law, groups: abc.Sequence[abc.Sequence[Sequence]]) -> list[Floats]:
    """The ratios log π(y) − log p(y) of the samples of each problem, [samples]; +∞ for a sample that p rules out.

    groups: samples of `policy`, by problem. Raises InputError for a problem without samples, and for a sample that the
    policy rules out: it is not the policy's.
    """
    if not groups or not all(groups):
        raise InputError(
            f"{[len(group) for group in groups]} samples by problem: expected at least one of each"
        )
    every = [sequence for group in groups for sequence in group]
    ours, theirs = policy.logprobs(every), base.logprobs(every)
    if not np.isfinite(ours).all():
        wrong = every[int(np.flatnonzero(~np.isfinite(ours))[0])]
        raise InputError(
            f"{wrong.text!r:.60} has no probability under the policy; give samples of the policy itself"
        )
    return np.split(ours - theirs, np.cumsum([len(group) for group in groups])[:-1])


def kl_by_problem(policy: Law, base: Law, groups: abc.Sequence[abc.Sequence[Sequence]]) -> Floats:
    """The mean of `log_ratios` of each problem, [problems]: unbiased; single problems may fall below 0 by chance."""
    return np.array([ratios.mean() for ratios in log_ratios(policy, base, groups)])
