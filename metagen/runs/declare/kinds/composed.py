"""Strategies with parts that an experiment file describes in a few words: utilities, judges, layers of agents."""

from __future__ import annotations

from collections import abc

from metagen import trust
from metagen.errors import ConfigError
from metagen.generators.base import Generator
from metagen.runs.declare.specs.strategies import AskSpec
from metagen.runs.declare.utilities import pairwise
from metagen.strategies.adaptive.confidence import Source
from metagen.strategies.adaptive.consistency import Beta
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.knockout import KnockOutTournament
from metagen.strategies.mixture import SYNTHESIS, MixtureOfAgents
from metagen.strategies.parallel import BestOfN
from metagen.strategies.prompts import REVISE, FollowUp, Form, Listing
from metagen.strategies.refine.feedback import Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.tree.treefinement import Select, Treefinement
from metagen.strategies.universal import MOST_CONSISTENT, UniversalSelfConsistency
from metagen.values import Amount, Certainty, Count, Fraction, Positive, Share
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.recorded import RecordedVerifier


def knockout(
    generator: Generator, n: int, *, judge: Verifier, answer: AnswerRule | None = None
) -> KnockOutTournament:
    """A knock-out tournament by the judge of a verifier of kind `tournament`."""
    return KnockOutTournament(generator, n, judge=pairwise(judge), answer=answer)


def universal(
    generator: Generator,
    n: int,
    *,
    judge: Generator | None = None,
    votes: Count = 1,
    words: str | None = None,
    chat: bool | None = None,
    answer: AnswerRule | None = None,
) -> UniversalSelfConsistency:
    """Universal self-consistency; words, chat: of what the judge is asked, as in `Listing`."""
    ask = _listing(MOST_CONSISTENT, words, chat)
    return UniversalSelfConsistency(generator, n, judge=judge, votes=votes, ask=ask, answer=answer)


def mixture(
    generator: Generator,
    agents: abc.Sequence[Generator],
    *,
    layers: Count = 1,
    words: str | None = None,
    chat: bool | None = None,
    answer: AnswerRule | None = None,
) -> MixtureOfAgents:
    """So many layers of the same agents; the generator has the last word. words, chat: as in `Listing`."""
    return MixtureOfAgents([agents] * layers, generator, ask=_listing(SYNTHESIS, words, chat), answer=answer)


def deepconf(
    generator: Generator,
    n: int,
    *,
    answer: AnswerRule,
    warmup: Count = 16,
    keep: Fraction = 0.1,
    window: Count = 16,
    block: Count = 16,
    of: Source = "chosen",
    batch: Count | None = None,
    confidence: Certainty | None = None,
) -> OnlineConfidence:
    """Online confidence; with `confidence`, the vote also ends when its leader is likely to stay."""
    rule = None if confidence is None else Beta(confidence)
    return OnlineConfidence(
        generator, n, answer=answer, warmup=warmup, keep=keep, window=window, block=block, of=of, rule=rule,
        batch=batch,
    )  # fmt: skip


def refinement(
    generator: Generator,
    n: int,
    *,
    verifier: Verifier,
    corrector: Generator | None = None,
    feedback: Verifier | None = None,
    silent: bool = False,
    rounds: Amount = 3,
    accept: Share = 1.0,
    memory: Amount = 0,
    ask: AskSpec | None = None,
    answer: AnswerRule | None = None,
) -> BestOfN:
    """N chains; the scores that they have paid for choose among them."""
    chain = Refinement(
        generator, corrector, verifier=verifier, feedback=Silence() if silent else feedback, rounds=rounds,
        accept=accept, memory=memory, ask=_ask(ask), answer=answer,
    )  # fmt: skip
    return BestOfN(chain, n, verifier=RecordedVerifier(verifier.name), answer=answer)


def treefinement(
    generator: Generator,
    n: int,
    *,
    verifier: Verifier,
    corrector: Generator | None = None,
    feedback: Verifier | None = None,
    silent: bool = False,
    rounds: Amount = 3,
    accept: Share = 1.0,
    ask: AskSpec | None = None,
    select: Select = "rebase",
    temperature: Positive = 0.2,
    m: Count = 1,
    answer: AnswerRule | None = None,
) -> Treefinement:
    """A tree of revisions. `silent: true` tells nothing."""
    told = Silence() if silent else feedback
    return Treefinement(
        generator, n, verifier=verifier, corrector=corrector, feedback=told, ask=_ask(ask), rounds=rounds,
        accept=accept, select=select, temperature=temperature, m=m, answer=answer,
    )  # fmt: skip


vars(treefinement).update(narrows=Treefinement.narrows, searches=True)


for _choosing in (universal, knockout):
    vars(_choosing).update(chooses=True)
vars(deepconf).update(adaptive=True)


def _listing(default: Listing, words: str | None, chat: bool | None) -> Listing:
    return Listing(default.words if words is None else words, default.chat if chat is None else chat)


def _ask(spec: AskSpec | None) -> Form[str, str | None]:
    if spec is None:
        return REVISE
    if spec.form is not None:
        return _function(spec.form)
    return FollowUp(spec.words or REVISE.words, spec.unsaid)


def _function(name: str) -> Form[str, str | None]:
    """The function `package.module:function`."""
    try:
        found: Form[str, str | None] = trust.load(name)
    except (ImportError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"ask.form = {name!r}: {error}; expected package.module:function") from error
    return found
