"""What a grammar's masks left of a model's distribution, as a weight that takes their bias out of samples."""

from __future__ import annotations

import dataclasses
import math
from collections import abc
from dataclasses import field
from typing import ClassVar

from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage, flops_2n, prefill_flops
from metagen.errors import DataError, InputError, UnsupportedError
from metagen.generators.engine import Evaluated, EvaluateRequest
from metagen.generators.primitive import EngineGenerator
from metagen.generators.watch import watch_evaluation
from metagen.journal import Row
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import UNSCORED, PrimitiveVerifier, Verifier, score_of, score_payload


@part
class ConstraintMass(Verifier):
    """w(y) = Π_t Σ_{x allowed} p(x | y_<t), as the generator kept it (`SamplingParams.log_mass`). Costs nothing.

    Of samples that a grammar or healing holds it is the importance weight: weighted by it they are draws of p, given
    that they are allowed, and its mean is the probability of that (Lew et al. 2023, arXiv:2306.03081). The end token
    counts. raw: log w. Raises DataError for a sequence whose generator did not keep it.
    """

    spends: ClassVar[bool] = False

    name: str = "constraint_mass"

    @property
    def fingerprint(self) -> str:
        return digest("constraint mass").hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        return [Score(math.exp(log_w), raw=log_w) for log_w in map(_log_mass, sequences)]


def _log_mass(sequence: Sequence) -> float:
    if sequence.log_mass is None:
        raise DataError(
            f"a sample of problem {sequence.prompt.problem_id!r} does not say what masks left of it; give its "
            "generator log_mass=True and a temperature above 0"
        )
    return sequence.log_mass


@part
class GrammarMass(PrimitiveVerifier):
    r"""w(y) = Π_t p(y_t | y_<t) / q(y_t | y_<t): p as the generator would draw freely, q as it draws under its grammar.

    That is what masks left: w(y) = Π_t Σ_{x allowed} p(x | y_<t), at most 1. Samples of q with these weights are
    samples of p given that the text is in the grammar; their mean is the probability of that, as far as q can draw it.
    The end token counts where the text has ended. raw: log w. It reads the model again, and so weighs what others
    wrote; of its own samples a generator can keep it (`ConstraintMass`).

    generator: held to a grammar; its engine reads distributions behind adapters. Raises InputError without a grammar,
    or with what cuts tokens off behind its masks, for w may then be more than 1; and UnsupportedError for an engine
    without token ids, or one that does not say which tokens end a text.

    Examples:
        >>> import metagen as mg
        >>> from metagen.verifiers.mass import GrammarMass
        >>> with mg.TorchEngine("tiny-0.1m", threads=1) as engine:
        ...     held = engine.generator(max_tokens=8, grammar=mg.Grammar.regex("a=[0-9]+"))
        ...     result = mg.BestOfN(held, 2, verifier=GrammarMass(held)).solve("Q:a=12+7;a?\nS:\n")
        >>> 0 < result.candidates[0].value <= 1
        True
    """

    generator: EngineGenerator = field(kw_only=False)
    name: str = "mass"

    def __post_init__(self) -> None:
        generator, name = self.generator, self.name
        if generator.params.grammar is None:
            raise InputError(
                f"{name}: {generator!r} is held to no grammar, so that nothing is left out; give one"
            )
        params = generator.params
        if (cuts := params.cuts) and params.temperature > 0:
            raise InputError(
                f"{name}: {cuts[0]}={getattr(params, cuts[0])!r} cuts tokens off behind the grammar's masks, so that a "
                "weight may be more than 1; leave it out"
            )
        if generator.tokenizer_fingerprint is None or not getattr(generator.engine, "ends", ()):
            raise UnsupportedError(
                f"{name}: {generator.engine!r} has no token ids, or does not say which of them end a text; use an "
                "engine that runs the model itself, such as TorchEngine"
            )
        self._ends: tuple[int, ...] = tuple(generator.engine.ends)  # type: ignore[attr-defined]  # as asked above

    @property
    def fingerprint(self) -> str:
        return digest("mass", self.generator.fingerprint).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        # Unlike other scores this one is of the tokens: another spelling of a text is another draw.
        contents = [digest(s.digest, repr(self._ids(s)[0])) for s in sequences]
        distinct = dict(zip(contents, sequences, strict=True))
        unique = list(distinct.values())
        request = Request("score", self.records, tuple(map(Item, distinct)))

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            return await self.evaluate([unique[i] for i in positions], scope, ended)

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            return self.worst([unique[i] for i in positions], scope)

        def remember(rows: list[Row]) -> None:
            self.remember([distinct[row.content] for row in rows], scope)

        rows = await scope.call(request, execute, worst, remember) if sequences else []
        scores = {row.content: score_of(row) for row in rows}
        return [scores.get(content, UNSCORED) for content in contents]

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        asked = [self._requests(sequence) for sequence in sequences]
        flat = [request for each in asked for request in each]
        answers = iter(await watch_evaluation(self.generator.engine, flat) if flat else [])
        return [
            self._outcome(sequence, [next(answers) for _ in each], scope)
            for sequence, each in zip(sequences, asked, strict=True)
        ]

    def _requests(self, sequence: Sequence) -> list[EvaluateRequest]:
        """What was drawn, free and held, and then the end, free and held."""
        ids, start = self._ids(sequence)
        both = self.generator.params.replace(grammar=None, log_mass=False), self.generator.params
        found = []
        if len(ids) > start:
            places = tuple(range(start - 1, len(ids) - 1))
            found += [EvaluateRequest(ids, places, params=params, start=start) for params in both]
        if sequence.finish == "eos":
            end = (len(ids) - 1,)
            found += [EvaluateRequest(ids, end, self._ends, params=params, start=start) for params in both]
        return found

    def _ids(self, sequence: Sequence) -> tuple[tuple[int, ...], int]:
        engine = self.generator.engine
        return engine.render(sequence) or (), len(engine.render(Sequence(sequence.prompt)) or ())

    def _outcome(self, sequence: Sequence, answers: abc.Sequence[Evaluated], scope: Scope) -> Outcome:
        each = [[_log_sum(values) for values in answer.values] for answer in answers]
        pairs = [
            pair
            for free, held in zip(each[::2], each[1::2], strict=True)
            for pair in zip(free, held, strict=True)
        ]
        # What was not allowed cannot have been drawn: the text is none of this generator's.
        ruled_out = any(held == -math.inf for _, held in pairs)
        log_w = -math.inf if ruled_out else math.fsum(free - held for free, held in pairs)
        score = Score(min(1.0, math.exp(log_w)), raw=log_w if log_w > -math.inf else None)
        ids, _ = self._ids(sequence)
        known = scope.prefixes(self.generator.engine.fingerprint).add(ids)
        read = [Usage(prefilled=a.prefilled, cached=a.cached) for a in answers]
        return Outcome(
            score_payload(score),
            self._usage(len(ids), known),
            dataclasses.replace(Usage.sum(read) if read else Usage(), calls=1),
        )

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        cache = scope.prefixes(self.generator.engine.fingerprint)
        rendered = [self._ids(sequence)[0] for sequence in sequences]
        return Usage.sum([self._usage(len(ids), cache.count_known(ids)) for ids in rendered])

    def remember(self, sequences: abc.Sequence[Sequence], scope: Scope) -> None:
        cache = scope.prefixes(self.generator.engine.fingerprint)
        for sequence in sequences:
            cache.note(self._ids(sequence)[0])

    def _usage(self, total: int, known: int) -> Usage:
        """Usage of one text, read once: both distributions come from the same logits."""
        shape = self.generator.engine.shape
        new = total - known
        usage = Usage(
            prefilled=new,
            cached=known,
            calls=1,
            flops=None if shape is None else prefill_flops(shape, total, known),
            flops_2n=None if shape is None else flops_2n(shape, new),
        )
        price = self.generator.price
        return dataclasses.replace(usage, money=price.of(usage) if price else None)


def _log_sum(values: abc.Sequence[float]) -> float:
    best = max(values)
    return best if best == -math.inf else best + math.log(math.fsum(math.exp(v - best) for v in values))
