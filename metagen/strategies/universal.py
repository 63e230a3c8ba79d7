"""Universal self-consistency: a model reads all candidates and names the one that agrees best with the others."""

from __future__ import annotations

import re
from collections import Counter, abc
from dataclasses import field
from typing import Final

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.matching import last_match
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.aggregate import Selection, best_of
from metagen.strategies.aggregators import Aggregator, texts
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import ParallelStrategy
from metagen.strategies.prompts import Form, Listing, ask_by
from metagen.values import Count
from metagen.verifiers.base import AnswerRule

#: Which response is the most consistent with all of them?
MOST_CONSISTENT: Final = Listing(
    "Here are a task and {count} responses to it.\n\nTask:\n{task}\n\n{responses}\n\n"
    "Compare the responses and name the one that most of the others agree with in what they conclude. "
    'End with its name alone on a line, such as "Response 1".'
)
NUMBER: Final = re.compile(r"\bresponse\s*#?\s*(\d+)", re.IGNORECASE)


@part
class Consistent(Aggregator):
    """The candidate that a model names when it is shown all of them (Chen et al. 2023, universal self-consistency).

    judge: the model; of its `votes` samples the most frequent choice counts, and the last number in a sample that
    `reads` finds is its choice, but for one at the end of a sample that was cut: more digits might have followed. Equal
    texts are one choice. ask: from task and candidates, in the order of their numbers, to the judge's prompt;
    by default a chat where the task is one, and else a text. Candidates are shown in an
    order of their digests, so that it does not depend on that of the pool. Where nothing that can be read is said, the
    budget ends before, or the candidates do not fit the judge's context, the tie rule decides. Raises InputError for a
    pattern without one group.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.universal import Consistent
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "2357"[index], name="digits")
        >>> judge = mg.FunctionGenerator(lambda prefix, seed, index: "Response 2 agrees best.", name="judge")
        >>> result = mg.Parallel(draw, 4, aggregator=Consistent(judge)).solve("A digit?")
        >>> result.text in "2357"
        True
    """

    judge: Generator = field(kw_only=False)
    votes: Count = 1
    ask: Form[abc.Sequence[str]] = MOST_CONSISTENT
    reads: re.Pattern[str] = NUMBER
    answer: AnswerRule | None = None

    def __post_init__(self) -> None:
        if self.reads.groups != 1:
            raise InputError(
                f"Consistent: reads={self.reads.pattern!r}; expected a pattern with one group, the number"
            )

    @property
    def spends(self) -> bool:
        return True

    async def choose(self, pool: list[Candidate], salt: str, scope: Scope) -> Selection:
        members = texts(pool)
        order = sorted(range(len(pool)), key=lambda i: digest(salt, members[i]))
        if len(set(members)) == 1:
            return Selection(order[0], {})
        shown = [members[i] for i in order]
        prompt = ask_by(self.ask, pool[0].sequence.prompt, shown)
        asking = self.judge.generate(Sequence.of(prompt), n=self.votes, scope=scope.child("consistent"))
        try:
            said = await scope.attempt(asking)
        except PromptError:  # the candidates do not fit its context
            said = None
        # Equal texts are one choice, by whichever of their numbers.
        named = Counter(
            shown[place] for one in said or () if (place := self._place(one, len(shown))) is not None
        )
        chosen = best_of([float(named[text]) for text in shown], shown, salt)
        return Selection(order[chosen.index], {}, blind=not named)

    def _place(self, said: Sequence, most: int) -> int | None:
        """The place that a reply names, from 0."""
        found = last_match(self.reads, said.text, ended=said.finish in ("eos", "stop"))
        digits = (found.groups[0] or "").strip() if found else ""
        number = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
        return number - 1 if 1 <= number <= most else None


@part
class UniversalSelfConsistency(ParallelStrategy):
    """Sample n candidates and let a model name the one that agrees best with the others: see `Consistent`.

    judge: the generator itself by default.
    """

    judges = frozenset({"judge"})

    judge: Generator | None = None
    votes: Count = 1
    ask: Form[abc.Sequence[str]] = MOST_CONSISTENT
    answer: AnswerRule | None = None

    def _aggregator(self) -> Aggregator:
        return Consistent(self.judge or self.generator, votes=self.votes, ask=self.ask, answer=self.answer)


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
    """Universal self-consistency for experiment files. words, chat: of the judge's question, as in `Listing`.

    votes: how often the judge is asked.
    """
    ask = MOST_CONSISTENT.but(words, chat)
    return UniversalSelfConsistency(generator, n, judge=judge, votes=votes, ask=ask, answer=answer)


vars(universal).update(chooses=True)
