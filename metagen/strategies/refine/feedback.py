"""Feedback: words on a candidate, so that it can be mended.

*Extrinsic* feedback brings in something that the model does not know: tests, a checker, a tool. *Intrinsic* feedback
comes from the model itself: `Critique`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from metagen.border import Part
from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.prompts import FollowUp, Form, ask_by
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.values import Filled
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.question import in_words


@dataclass(frozen=True, slots=True)
class Remark:
    """What is said of a candidate. text: None where there is nothing to say. done: nothing is left to mend."""

    text: str | None = None
    done: bool = False


class Feedback(Part, ABC):
    """Says something of a candidate. Whatever it calls is called through the scope."""

    @property
    def fingerprint(self) -> str:
        """Names the source: equal fingerprints promise equal remarks."""
        return fingerprint(self)

    @abstractmethod
    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        """A remark on a candidate. score: what the strategy's verifier says of it, where there is one."""


def words(score: Score | None) -> str | None:
    """The words of a score: its feedback, or else its verdict."""
    if score is None:
        return None
    return score.feedback or (f"Verdict: {score.verdict}." if score.verdict else None)


@part
class OwnWords(Feedback):
    """The words of the score that the strategy's verifier has given anyway. Costs nothing.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.refine.feedback import OwnWords
        >>> draw = mg.FunctionGenerator(lambda prefix, seed, index: "7", name="draft")
        >>> small = mg.FunctionVerifier(lambda s: mg.Score(0.0, feedback="Too small."), name="small")
        >>> mg.Refinement(draw, verifier=small, feedback=OwnWords(), rounds=1).solve("A number?").text
        '7'
    """

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        return Remark(words(score))


@part
class Silence(Feedback):
    """Says nothing: what is revised is known to be unaccepted, and no more. To measure what words are worth."""

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        return Remark()


@part
class WordsOf(Feedback):
    """The words of a verifier other than the one that measures, such as public tests beside a reward model.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.refine.feedback import WordsOf
        >>> def write(prefix, seed, index):
        ...     return "8" if "Too small." in prefix.prompt.text else "7"
        >>> value = mg.FunctionVerifier(lambda s: int(s.text) / 8, name="value")
        >>> words = mg.FunctionVerifier(lambda s: mg.Score(0.0, feedback="Too small."), name="words")
        >>> draft = mg.FunctionGenerator(write, name="draft")
        >>> mg.Refinement(draft, verifier=value, feedback=WordsOf(words), rounds=1).solve("A number?").text
        '8'
    """

    verifier: Verifier = field(kw_only=False)

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        (said,) = await self.verifier.score([candidate], scope=scope)
        return Remark(words(said))


def silenced(given: Mapping[str, Any]) -> str | None:
    """What `silent` and `feedback` cannot be to each other."""
    if given.get("silent") and given.get("feedback") is not None:
        return f"silent=True: nothing is said, and feedback={given['feedback']!r} would say something; give one of them"
    return None


def source(feedback: Feedback | Verifier | None) -> Feedback:
    """A verifier speaks by its scores; None leaves the words to the one that measures."""
    if feedback is None:
        return OwnWords()
    return WordsOf(feedback) if isinstance(feedback, Verifier) else feedback


#: What a critic writes, on a line of its own, where nothing is left to mend.
STOP: Final = "NOTHING TO MEND"

#: What is wrong? Asked of the model that wrote the answer, or of another.
CRITIQUE: Final = FollowUp(
    "{feedback}\n\nCheck this answer step by step. Say what is wrong or missing, where, and how to mend it. "
    f"If nothing is, write {STOP} on a line of its own.",
    "Check this answer step by step. Say what is wrong or missing, where, and how to mend it. "
    f"If nothing is, write {STOP} on a line of its own.",
)

#: Why did it fail, and what is to be done otherwise?
REFLECT: Final = FollowUp(
    "{feedback}\n\nSo this attempt has failed. In a few sentences, say why, and what to do otherwise in the next "
    "attempt. Do not write the attempt itself.",
    "This attempt has failed. In a few sentences, say why, and what to do otherwise in the next attempt. "
    "Do not write the attempt itself.",
)


@part
class Critique(Feedback):
    """A generator's words on a candidate. It is told what the strategy's verifier has said, where that has words.

    ask: from task, candidate and these words to the critic's prompt. stop: the critic means that nothing is left to
    mend where a line of its critique is this text, whatever its case and punctuation; None: it cannot stop.
    What does not fit the critic's context gets no words.
    """

    generator: Generator = field(kw_only=False)
    ask: Form[str, str | None] = CRITIQUE
    stop: Filled | None = STOP

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        prompt = ask_by(self.ask, candidate.prompt, candidate.text, words(score))
        try:
            (said,) = await self.generator.generate(Sequence.of(prompt), scope=scope)
        except PromptError:  # longer than the context
            return Remark()
        return Remark(said.text.strip() or None, self._stops(said.text))

    def _stops(self, text: str) -> bool:
        if self.stop is None:
            return False
        line = re.compile(rf"\W*{re.escape(self.stop)}\W*", re.IGNORECASE)
        return any(line.fullmatch(each.strip()) for each in text.splitlines())


TAKEN = ("candidate", "task", "public")


@part
class ToolFeedback(Feedback):
    """What a tool says of a candidate. It is called through the scope: recorded, and charged as a call.

    tool: a function, which may be async, or a `Tool` (for a time limit and retries of one's own). It takes any of
    `candidate` and `task`, which are texts, and `public`, what a strategy may see of the task; it returns a text, or
    None where it has nothing to say. A ToolError, a time-out among them, is a remark as well. ends: where it has
    nothing to say, nothing is left to mend. Raises InputError for a tool that needs other arguments.
    """

    tool: Tool | Function = field(kw_only=False)
    ends: bool = False

    def __post_init__(self) -> None:
        self.tool = self._tool = as_tool(self.tool)
        if odd := [name for name in self._tool.required if name not in TAKEN]:
            raise InputError(
                f"the tool {self._tool.name!r} needs {odd[0]!r}; as feedback it gets {', '.join(TAKEN)}"
            )

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        prompt = candidate.prompt
        given = {"candidate": candidate.text, "task": in_words(prompt), "public": dict(prompt.public)}
        names = {*self._tool.required, *self._tool.optional}
        try:
            said = await self._tool.call({name: given[name] for name in TAKEN if name in names}, scope)
        except ToolError as error:
            return Remark(str(error))
        if said is not None and not isinstance(said, str):
            raise InputError(f"the tool {self._tool.name!r} said {said!r:.60}; expected a text, or None")
        return Remark(said or None, done=self.ends and not said)
