"""Who answers a judge's question: one reads the probabilities of labels, one the verdicts that are written."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Final, Literal

from metagen.border import Part
from metagen.cost import FREE, Price
from metagen.errors import InputError, ScopeError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.generators.primitive import Primitive
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence, TokenIds, digest
from metagen.values import Amount, Count
from metagen.verifiers.base import UNSCORED
from metagen.verifiers.generative.labels import LabelReader, Reading
from metagen.verifiers.generative.question import CORRECT, Question
from metagen.verifiers.generative.written import VerdictReader
from metagen.verifiers.published import special_tokens

#: How a verdict is come to.
Way = Literal["labels", "samples"]
#: The verdict where nothing that was written can be read as one.
UNPARSABLE: Final = "unparsable"
UNREAD: Final = Score(None, verdict=UNPARSABLE)
#: Goes up when what is written would be read otherwise than before.
EDITION: Final = "2"
#: A task to try a question out with.
TRIAL = Prompt("trial", text="?")


@dataclass(frozen=True, slots=True)
class Asked:
    """A judge's prompt, without the cue. name: what it is about; together with the judge it determines the prompt."""

    name: bytes
    prompt: Prompt


class Respondent(Part, ABC):
    """Answers a question by a label, or by a distribution over labels."""

    question: Question
    #: How it comes to a verdict: it reads the labels' probabilities, or the verdicts of written samples.
    way: Way

    def is_forged(self, text: str) -> bool:
        """Whether a completion writes what is the judge's alone: its cue, or, in a chat, a control token.

        Such a token would end the user's turn, and what follows would be the judge's own words.
        """
        return self.question.is_forged(text) or any(token in text for token in self._control)

    @cached_property
    def _control(self) -> tuple[str, ...]:
        """Control tokens of the models that read the question as a chat."""
        if not self.question.chat:
            return ()
        folders = {folder for part in vars(self).values() for folder in _folders(part)}
        return tuple(sorted({token for folder in folders for token in special_tokens(folder)}))

    def judge_prompt(self, prompt: Prompt) -> Prompt:
        """The prompt that the judge completes, made of the prompt of its question."""
        return prompt

    @property
    def generates(self) -> bool:
        """Whether an answer may cost generated tokens."""
        return True

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names judge and question: equal fingerprints promise equal answers."""

    @abstractmethod
    async def ask(self, asked: abc.Sequence[Asked], scope: Scope) -> list[Score]:
        """One score each, in order. value: the label's worth in [0, 1]; raw: on the question's own scale.

        feedback: a critique, where there are any. Verdicts: `unscored` for what a budget left out, `too long` for the
        model's context, `unparsable` if there is no label. Raises a limit's refusal where that left out all.
        """


@part
class LabelRespondent(Respondent):
    """Reads the probabilities of the labels behind the cue: GenRM (Zhang et al. 2024).

    Without critiques, v = Σ_l worth(l) p(l | question), one evaluation. With them, k critiques c_i are sampled
    from `critic` and v = (1/k) Σ_i Σ_l worth(l) p(l | question, c_i) (GenRM-CoT); a critique that writes the
    cue itself is cut there, and one that a budget cut counts for nothing. One that its length cut within its thought
    says nothing either, and is counted (`Score.unread`). The critic needs not be the same model.

    normalise: p is the share among the labels; False takes the probability as it is, what lies beside all labels
    being worth as much as the worst. Needs an engine with token ids, and for a question in chat form with a
    template. Raises InputError for critiques without a critic, or the other way round.
    """

    way = "labels"

    engine: Engine = field(kw_only=False)
    question: Question = field(default=CORRECT, kw_only=False)
    critic: Generator | None = None
    critiques: Amount = 0
    normalise: bool = True
    price: Price | None = FREE

    def __post_init__(self) -> None:
        engine, question, critic, critiques = self.engine, self.question, self.critic, self.critiques
        if (critic is None) != (critiques == 0):
            raise InputError(
                f"critiques={critiques!r}, critic={critic!r}: expected both, a generator and a number ≥ 1, or neither"
            )
        if critic is not None:
            _check_independent(critic)
        # What the engine cannot write, such as a chat without a template, it says here and not in the middle of a run.
        engine.render(
            Sequence(question.prompt(TRIAL, **dict.fromkeys(question.places - {"task"}, "?")), question.cue)
        )
        self._reader = LabelReader(engine, list(question.labels), question.wording, self.price)

    def __repr__(self) -> str:
        behind = f", behind {self.critiques} critiques of {self.critic!r}" if self.critic else ""
        return f"the probabilities of labels in {self.engine!r}{behind}"

    @property
    def generates(self) -> bool:
        return self.critic is not None

    @property
    def fingerprint(self) -> str:
        critic = f"{EDITION} {self.critic.fingerprint}" if self.critic else ""
        parts = (self._reader.fingerprint, self.question.fingerprint, critic)
        return digest("probability judge", *parts, str(self.critiques), str(self.normalise)).hex()

    async def ask(self, asked: abc.Sequence[Asked], scope: Scope) -> list[Score]:
        critic = self.critic
        if critic is None:
            cue = self.question.cue
            readings = await self._reader.read([(a.name, Sequence(a.prompt, cue)) for a in asked], scope)
            return [self._score(reading) for reading in readings]
        return await _each(asked, lambda one: self._criticise(one, critic, scope), scope)

    async def _criticise(self, one: Asked, critic: Generator, scope: Scope) -> Score:
        written = await _write(critic, one.prompt, self.critiques, scope)
        done = [critique for critique in written if not critique.exhausted]
        whole = [critique for critique in done if not critique.cut_in_thought]
        ends = [self._end(critique) for critique in whole]
        readings = await self._reader.read([(end.digest, end) for end in ends], scope)
        pairs = [(self._score(r), critique.text) for r, critique in zip(readings, whole, strict=True)]
        return _mean([*pairs, *[(UNREAD, "")] * (len(done) - len(whole))])

    def _end(self, critique: Sequence) -> Sequence:
        """The critique, up to the cue if it goes as far, and the cue."""
        cue, join = self.question.cue, self.question.join
        text = critique.text.partition(cue.strip())[0] if cue.strip() else critique.text
        tail = ("" if text.endswith(join) else join) + cue if text else cue
        tokens = None
        known = critique.tokens
        if (
            known is not None
            and known.tokenizer == self.engine.tokenizer_fingerprint
            and text == critique.text
        ):
            tokens = TokenIds((*known.ids, *(self.engine.encode(tail) if tail else ())), known.tokenizer)
        # A thought is among the tokens and not in the text, which may stand behind several: it names the end, too.
        thought = critique.thought if tokens else None
        return Sequence(critique.prompt, text + tail, tokens=tokens, thought=thought)

    def _score(self, reading: Reading) -> Score:
        if reading.verdict is not None:
            return Score(None, verdict=reading.verdict)
        raw = self.question.mean_value(reading.shares)
        if not self.normalise:
            worst = min(self.question.labels.values())
            raw = worst + reading.mass * (raw - worst)
        return Score(self.question.to_unit(raw), raw=raw)


@part
class WritingRespondent(Respondent):
    """Lets a generator write answers, `samples` times, reads the verdict of each, and takes the mean worth.

    For generators whose probabilities cannot be read: hosted models, functions, strategies. A verdict is a label or,
    where there is none, a score (`VerdictReader`); the rest of an answer is the critique. A chat is told the form of
    the answer behind the question; a text is not, and has to show it itself. Answers without a verdict, and those that
    a limit cut within their thought or before their verdict, count for nothing and are counted (`Score.unread`); if
    none has one, the score has no value and the verdict `unparsable`.

    Examples:
        >>> import metagen as mg
        >>> from metagen.verifiers.generative.respondent import WritingRespondent
        >>> critic = mg.FunctionGenerator(lambda prefix, seed, index: ["Yes", "No", "Yes", "Yes"][index], name="critic")
        >>> grade = mg.Judge.of(WritingRespondent(critic, samples=4))
        >>> mg.BestOfN(critic, 1, verifier=grade).solve("Is it so?").candidates[0].value
        0.75
    """

    way = "samples"

    generator: Generator = field(kw_only=False)
    question: Question = field(default=CORRECT, kw_only=False)
    samples: Count = 1

    def __post_init__(self) -> None:
        _check_independent(self.generator)
        self._reader = VerdictReader(self.question)

    def __repr__(self) -> str:
        return f"the mean of {self.samples} written verdicts of {self.generator!r}"

    @property
    def fingerprint(self) -> str:
        parts = (self.generator.fingerprint, self.question.fingerprint, str(self.samples), EDITION)
        return digest("counting judge", *parts).hex()

    async def ask(self, asked: abc.Sequence[Asked], scope: Scope) -> list[Score]:
        return await _each(asked, lambda one: self._count(one, scope), scope)

    def judge_prompt(self, prompt: Prompt) -> Prompt:
        return self.question.with_instructions(prompt)

    async def _count(self, one: Asked, scope: Scope) -> Score:
        # The cue is not written for the judge: a server may not be able to go on from half an answer.
        prompt = self.judge_prompt(one.prompt)
        written = await _write(self.generator, prompt, self.samples, scope)
        return _mean([(self._read(answer), answer.text) for answer in written])

    def _read(self, answer: Sequence) -> Score:
        found = self._reader.read(answer.text, ended=answer.finish != "length")
        if found is None:
            return UNREAD
        return Score(self.question.to_unit(found.raw), raw=found.raw)


async def _each(
    asked: abc.Sequence[Asked], answer: Callable[[Asked], Awaitable[Score]], scope: Scope
) -> list[Score]:
    """The answers to questions of several calls each, the same one once; `unscored` what a limit left out."""
    distinct = {one.name: one for one in asked}
    answered = (await scope.batch(distinct.values(), answer)).some()
    scores = dict(zip(distinct, answered, strict=True))
    return [scores[one.name] or UNSCORED for one in asked]


def _folders(part: object) -> Iterator[Path]:
    """The directories of the models that an engine, a generator or a strategy has."""
    if isinstance(folder := getattr(part, "directory", None), Path):
        yield folder
    for inner in ("engine", "generator"):
        if (below := getattr(part, inner, None)) is not None:
            yield from _folders(below)


async def _write(generator: Generator, prompt: Prompt, n: int, scope: Scope) -> list[Sequence]:
    """N answers to a prompt. A primitive's samples are named by what is asked; others get a scope of that name."""
    if not isinstance(generator, Primitive):
        scope = _own(scope, f"critique/{prompt.digest.hex()[:16]}")
    return await generator.generate(Sequence(prompt), n=n, scope=scope)


def _own(scope: Scope, role: str) -> Scope:
    """A child of that name; asked for again in the same scope, one with a number, whose answers are drawn anew."""
    for again in count():
        try:
            return scope.child(f"{role}/again/{again}" if again else role)
        except ScopeError:
            continue  # the same candidate came before, in another call; what was said of it then is not at hand
    raise AssertionError("unreachable")


def _mean(parts: abc.Sequence[tuple[Score, str]]) -> Score:
    """The mean of scores that have a value; as feedback, the words of the one nearest to it. Else the first verdict.

    unread: how many have no verdict that can be read.
    """
    known = [(score, words) for score, words in parts if score.value is not None]
    unread = sum(score.verdict == UNPARSABLE for score, _ in parts)
    if not known:
        return replace(parts[0][0], unread=unread) if parts else UNSCORED
    value = math.fsum(score.value or 0.0 for score, _ in known) / len(known)
    raw = math.fsum(score.raw or 0.0 for score, _ in known) / len(known)
    feedback = min(known, key=lambda part: abs((part[0].value or 0.0) - value))[1]
    return Score(min(1.0, max(0.0, value)), raw=raw, feedback=feedback or None, unread=unread)


def _check_independent(generator: Generator) -> None:
    if not generator.independent:
        raise UnsupportedError(f"a judge averages independent answers; {generator!r} draws jointly")
