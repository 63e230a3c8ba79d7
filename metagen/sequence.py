"""What flows: prompts, the sequences that continue them, and the scores that sequences are given.

All are frozen values. A prompt is the empty sequence, so there is one thing to ask a generator:
*continue this prefix*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from numbers import Real
from typing import Any, Final, Literal, get_args

from metagen.border import checked
from metagen.errors import InputError, PromptError

Finish = Literal["eos", "stop", "length"]
Role = Literal["system", "user", "assistant", "tool"]
#: How a model is asked: by the turns of a chat; by plain text; by turns if it has a chat template, else by text.
Form = Literal["chat", "text", "auto"]
#: A token's confidence is at most so large: no log-probability in it counts less than −100, so that it is finite
#: where a token cannot come.
MOST_CONFIDENT: Final = 100.0


def digest(*parts: str | bytes) -> bytes:
    """16 bytes that name `parts`; parts are length-prefixed, so no two lists collide by joining."""
    return blake2b(_frame(parts), digest_size=16).digest()


def digest_of_many(parts: Iterable[str | bytes]) -> bytes:
    """`digest` of more parts than should be in memory at a time."""
    h = blake2b(digest_size=16)
    for part in parts:
        h.update(_frame([part]))
    return h.digest()


def digests(*parts: str | bytes) -> Callable[..., bytes]:
    """For many lists that begin with the same parts: `digests(a)(b, c)` is `digest(a, b, c)`."""
    head = blake2b(_frame(parts), digest_size=16)

    def digest_of(*rest: str | bytes) -> bytes:
        h = head.copy()
        h.update(_frame(rest))
        return h.digest()

    return digest_of


def _frame(parts: Iterable[str | bytes]) -> bytes:
    framed: list[bytes] = []
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        framed.append(len(data).to_bytes(8, "little"))
        framed.append(data)
    return b"".join(framed)


@checked
@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. Raises PromptError for another role, and for a content that is no text, such as an image."""

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise PromptError(
                f"a message has the role {self.role!r}; expected one of {', '.join(get_args(Role))}"
            )
        words(self.content, f"the {self.role}'s message")

    @classmethod
    def of(cls, given: Message | Mapping[str, Any]) -> Message:
        """A message from a mapping with `role` and `content`, and nothing else that is not null.

        content: a text, or parts that are texts, as OpenAI's API has them. Raises PromptError for anything else.
        """
        if isinstance(given, Message):
            return given
        fields: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}  # type: ignore[redundant-expr]
        if beside := [
            name for name in fields if name not in ("role", "content") and fields[name] is not None
        ]:
            raise PromptError(
                f"a message has {beside[0]!r}: {fields[beside[0]]!r:.60}; metagen sends role and content, which is "
                "text: leave the rest out, or write it into the content"
            )
        if not {"role", "content"} <= set(fields):
            raise PromptError(f'{given!r:.80} is no message; expected {{"role": "user", "content": "…"}}')
        return cls(fields["role"], words(fields["content"], f"the {fields['role']}'s message"))


def words(content: Any, what: str) -> str:
    """A message's content as a text: itself, or its parts one after the other, where all of these are texts.

    Raises PromptError for anything else, by the kind of the first part that is none.
    """
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else [content]
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "input_text") or not isinstance(part.get("text"), str):
            found = f"a part of type {kind!r}" if isinstance(kind, str) else f"{part!r:.60}"
            raise PromptError(
                f'{what} holds {found}; metagen sends text only: a text, or parts {{"type": "text", "text": "…"}}. '
                "Images, sound, files and calls of tools are not supported: describe them in words, or leave them out"
            )
    return "".join(part["text"] for part in parts)


@checked
@dataclass(frozen=True, slots=True)
class Prompt:
    """The input x: a text, or chat messages, of which the last may be a partial assistant turn.

    `public` is data that a strategy may see (visible tests, an entry point); it must be JSON.
    The reference answer is never part of a prompt.
    form: how messages are sent: as turns, by the model's chat template (`chat`, or None), as plain text (`text`), or as
    turns to a model that has a template, and else as plain text (`auto`). A text is sent as it is; `text` says that
    this is meant for models with a template, too, whose generators else warn of it. A server's chat API knows turns
    only: a text is what the user says, and form `text` is refused. Raises PromptError for a text beside messages, for
    neither, and for a form that does not fit.
    """

    problem_id: str
    text: str | None = None
    messages: tuple[Message, ...] = ()
    public: Mapping[str, Any] = field(default_factory=dict, hash=False)
    form: Form | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(map(Message.of, self.messages)))
        if self.form not in (None, *get_args(Form)):
            raise PromptError(f"form={self.form!r}: expected one of {', '.join(get_args(Form))}, or None")
        if self.text is not None and self.form not in (None, "text"):
            raise PromptError(
                f"prompt {self.problem_id!r}: form={self.form!r} is for messages, and there is a text; "
                "Prompt.of(text, form=…) makes it the user's turn"
            )
        if self.form == "chat":
            object.__setattr__(self, "form", None)
        if (self.text is None) == (not self.messages):
            raise PromptError(
                f"prompt {self.problem_id!r} needs either text or messages, got "
                f"text={self.text!r} and {len(self.messages)} messages; give exactly one"
            )
        if self.text == "" or (self.messages and not any(m.content for m in self.messages)):
            raise PromptError(f"prompt {self.problem_id!r} is empty; give it at least one character")

    @classmethod
    def of(
        cls, prompt: Prompt | str | Iterable[Message | Mapping[str, Any]], *, form: Form | None = None
    ) -> Prompt:
        """A prompt from what people type: a string or chat messages; its id is its digest.

        form: as of a Prompt; `chat` and `auto` make a string the user's turn. A Prompt is returned as it is. Raises
        PromptError for an empty prompt, or what is none.
        """
        if isinstance(prompt, Prompt):
            return prompt
        if isinstance(prompt, str):
            if not prompt:
                raise PromptError("the prompt is empty; give it at least one character")
            if form in (None, "text"):
                return cls(digest(prompt).hex()[:12], text=prompt, form=form)
            prompt = [Message("user", prompt)]
        try:
            messages = tuple(map(Message.of, prompt))
        except TypeError:
            raise PromptError(
                f"{prompt!r:.80} is no prompt; expected a text, or messages such as "
                '{"role": "user", "content": "…"}'
            ) from None
        name = digest(*(part for m in messages for part in (m.role, m.content))).hex()[:12]
        return cls(name, messages=messages, form=form)

    def plain(self, *, template: bool) -> str | None:
        """The text that is sent as it is; None where messages are sent as turns. template: the model has one.

        A blank line stands between turns, unless the first of two ends in white space itself.
        """
        if self.text is not None:
            return self.text
        if self.form not in ("text", "auto") or (self.form == "auto" and template):
            return None
        *before, last = [m.content for m in self.messages if m.content]
        return "".join([*(text if text[-1].isspace() else f"{text}\n\n" for text in before), last])

    @property
    def digest(self) -> bytes:
        """Names the content: text or messages and the public data, not the problem's id."""
        parts = [self.text or ""]
        for message in self.messages:
            parts += [message.role, message.content]
        if self.messages and self.form == "text":
            parts.append("plain")
        if self.public:
            parts.append(json.dumps(self.public, sort_keys=True, ensure_ascii=False))
        return digest(*parts)


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Token ids of a completion, valid only under the tokenizer with this fingerprint."""

    ids: tuple[int, ...]
    tokenizer: str


@dataclass(frozen=True, slots=True)
class Score:
    """What a verifier says of a sequence.

    value: in [0, 1], or None where there is only a verdict. raw: the scalar before the monotone map
    into [0, 1]. steps: one value per step, for process verifiers. feedback: words for refinement.
    verdict: `timeout`, `unparsable`, … instead of a value. oracle: made with the reference answer.
    unread: of the answers that a judge wrote, how many have no verdict that can be read; they count for nothing. Raises
    InputError for a value outside [0, 1], and for neither value nor verdict.
    """

    value: float | None
    raw: float | None = None
    steps: tuple[float, ...] | None = None
    feedback: str | None = None
    verdict: str | None = None
    oracle: bool = False
    unread: int = 0

    def __post_init__(self) -> None:
        if self.value is None and self.verdict is None:
            raise InputError("a score needs a value or a verdict, got neither")
        if self.value is not None and not (isinstance(self.value, Real) and 0.0 <= self.value <= 1.0):
            raise InputError(
                f"a score's value lies in [0, 1], got {self.value!r}; "
                "map a scalar reward monotonically and keep it as raw="
            )


@dataclass(frozen=True, slots=True)
class Thought:
    """What a model thought before its answer, told apart from it.

    text: None where the server does not show it. tokens: decoded for it, of those that were generated; None if unknown.
    written: as the model wrote it, with the marks around it, where these are known: an engine that reads text goes on
    from it. None where a server told the thought in a field of its own. ended: False where something cut it, so that no
    answer follows it; whoever begins an answer behind it has ended it.
    """

    text: str | None = None
    tokens: int | None = None
    written: str | None = None
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Sequence:
    """A completion y of a prompt, finished or partial.

    text: the answer so far, without the prompt and without the thought before it; canonical. tokens: ids of thought and
    text, where known. thought: None where nothing was told apart from the text.
    logprob: log p(y | x) under the raw model (temperature 1, no adapters), in nats; None if unknown.
    token_logprobs: the same of each token. token_confidences: how sure the raw model was at each token, from 0 to
    MOST_CONFIDENT (see `SamplingParams.top_logprobs`). None if unknown.
    log_mass: the sum of what masks left at each token, as `SamplingParams.log_mass` keeps it; None if it is not known.
    finish: how the text ended; None while it can be extended.
    cut: the last step was ended by its length, not by its delimiter.
    exhausted: a best effort: a strategy chose it because its budget ended, or knew nothing of what it chose among.
    steps: character offsets in `text` at which steps end.
    scores: by name of the verifier, as given by strategies.
    """

    prompt: Prompt
    text: str = ""
    tokens: TokenIds | None = None
    logprob: float | None = 0.0
    token_logprobs: tuple[float, ...] | None = None
    finish: Finish | None = None
    cut: bool = False
    exhausted: bool = False
    steps: tuple[int, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict, hash=False)
    token_confidences: tuple[float, ...] | None = None
    log_mass: float | None = None
    thought: Thought | None = None

    @classmethod
    def of(cls, prefix: Sequence | Prompt | str) -> Sequence:
        """The empty sequence of a prompt; a sequence is returned as it is."""
        return prefix if isinstance(prefix, Sequence) else cls(Prompt.of(prefix))

    @property
    def digest(self) -> bytes:
        """Names prompt, thought and text. Ids are left out: text is canonical."""
        thought = () if self.thought is None or not self.thought.text else (self.thought.text,)
        return digest(self.prompt.digest, self.text, *thought)

    @property
    def cut_in_thought(self) -> bool:
        """Whether its length ended it before the thought did, so that there is no answer: not an empty one."""
        return self.thought is not None and not self.thought.ended and self.finish == "length"

    @property
    def written(self) -> str:
        """Thought and text as the model wrote them, for engines that go on from a text.

        Raises PromptError for a thought whose marks are not known.
        """
        if self.thought is None:
            return self.text
        if self.thought.written is None:
            raise PromptError(
                f"problem {self.prompt.problem_id!r}: a server told the thought of this sequence apart, and the marks "
                "around it are not known; go on at that server, or from the prompt"
            )
        return self.thought.written + self.text

    @property
    def answered(self) -> Sequence:
        """The answer alone, as whoever is not concerned with thoughts sees it. Ids, which hold both, are dropped."""
        if self.thought is None:
            return self
        return replace(self, thought=None, tokens=None, token_logprobs=None, token_confidences=None)

    @property
    def whole(self) -> Sequence:
        """Thought and answer as one text, the thought first, a blank line between them."""
        if self.thought is None:
            return self
        parts = [part for part in (self.thought.text, self.text) if part]
        shift = len("\n\n".join(parts)) - len(self.text)
        return replace(
            self.answered, text="\n\n".join(parts), steps=tuple(shift + end for end in self.steps), scores={}
        )

    def extends(self, prefix: Sequence) -> bool:
        """Whether this sequence continues `prefix` (or is it)."""
        if self.prompt != prefix.prompt or not self.text.startswith(prefix.text):
            return False
        before = prefix.thought.text if prefix.thought else None
        return not before or (self.thought is not None and (self.thought.text or "").startswith(before))

    def extend(
        self,
        text: str,
        *,
        tokens: TokenIds | None = None,
        logprob: float | None = None,
        token_logprobs: tuple[float, ...] | None = None,
        token_confidences: tuple[float, ...] | None = None,
        log_mass: float | None = None,
        finish: Finish | None = None,
        cut: bool = False,
        step_end: int | None = None,
        thought: Thought | None = None,
    ) -> Sequence:
        """This sequence with `text` appended. `step_end` counts characters from the old end. thought: what was thought
        between; it goes on from a thought that is there.

        Ids survive only when the old ones belong to the same tokenizer (or the old text is empty). Raises InputError
        for a sequence that is finished.
        """
        if self.finish is not None:
            raise InputError(
                f"a finished sequence cannot be extended: finish={self.finish!r}; "
                "generate from a prefix whose finish is None"
            )
        if tokens is not None and self.tokens is not None and self.tokens.tokenizer == tokens.tokenizer:
            # Even if there is no text yet: a token may hold only a part of its first character.
            tokens = TokenIds(self.tokens.ids + tokens.ids, tokens.tokenizer)
        elif self.text or self.thought is not None:
            tokens = None
        known = self.logprob is not None and logprob is not None
        fresh = not self.text and self.tokens is None
        mass = 0.0 if fresh and self.log_mass is None else self.log_mass
        return replace(
            self,
            text=self.text + text,
            tokens=tokens,
            logprob=self.logprob + logprob if known else None,  # type: ignore[operator]
            token_logprobs=self._join(self.token_logprobs, token_logprobs),
            token_confidences=self._join(self.token_confidences, token_confidences),
            log_mass=None if mass is None or log_mass is None else mass + log_mass,
            finish=finish,
            cut=cut,
            steps=self.steps if step_end is None else (*self.steps, len(self.text) + step_end),
            scores={},
            thought=_both(self.thought, thought),
        )

    def _join(self, old: tuple[float, ...] | None, new: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """Numbers of the tokens so far and of new ones; None where some are unknown."""
        return None if new is None or (old is None and (self.text or self.thought)) else (old or ()) + new

    def reroot(self, prefix: Sequence) -> Sequence:
        """This sequence's text as a completion of `prefix`, for a text that was written under another prompt.

        Itself, if it extends `prefix` already. Ids, log-probabilities and scores belong to the other prompt and are
        left behind.
        """
        if self.extends(prefix):
            return self
        start = len(prefix.text)
        return Sequence(
            prefix.prompt,
            prefix.text + self.text,
            logprob=None,
            finish=self.finish,
            cut=self.cut,
            exhausted=self.exhausted,
            steps=(*prefix.steps, *(start + end for end in self.steps)),
            thought=_both(prefix.thought, self.thought),
        )

    def with_score(self, name: str, score: Score) -> Sequence:
        """This sequence with one more score kept in it."""
        return replace(self, scores={**self.scores, name: score})


def _both(first: Thought | None, then: Thought | None) -> Thought | None:
    """One thought of two that follow on each other."""
    if first is None or then is None:
        return then if first is None else first
    tokens = None if first.tokens is None or then.tokens is None else first.tokens + then.tokens
    return Thought(_plus(first.text, then.text), tokens, _plus(first.written, then.written), then.ended)


def _plus(first: str | None, then: str | None) -> str | None:
    return None if first is None or then is None else first + then


@checked
@dataclass(frozen=True, slots=True)
class Step:
    r"""Generate to the end of a step: the token that completes `delimiter`, hang-over kept.

    A step of `max_tokens` without delimiter is cut: `finish` stays None and `cut` is True. mark: what the step that
    holds the answer has in its text, such as `\boxed{`: once that step has ended, so has the sequence (`finish` is
    "stop"), and nothing is asked for its end token. Raises InputError for an empty delimiter or mark, and for
    max_tokens < 1.
    """

    delimiter: str = "\n"
    max_tokens: int | None = None
    mark: str | None = None

    def __post_init__(self) -> None:
        if not self.delimiter:
            raise InputError("a step's delimiter is empty; give the text that ends a step, such as '\\n'")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"a step's max_tokens is at least 1, got {self.max_tokens!r}")
        if self.mark == "":
            raise InputError(
                "a step's mark is empty; give text of the answer's step, such as '####', or None"
            )

    def __repr__(self) -> str:
        mark = "" if self.mark is None else f", mark={self.mark!r}"
        return f"Step(delimiter={self.delimiter!r}, max_tokens={self.max_tokens!r}{mark})"

    @property
    def asked(self) -> Step:
        """As engines are asked for it, and records name it: the mark is read from the text."""
        return self if self.mark is None else replace(self, mark=None)

    def mark_end(self, before: Sequence, after: Sequence) -> Sequence:
        """`after`, which continues `before` by one step: finished, if that step has ended and holds the mark."""
        if self.mark is None or after.finish is not None or len(after.steps) == len(before.steps):
            return after
        # A step begins in what hung over from the one before, or in what was cut of itself.
        begins = before.steps[-1] if before.steps else 0 if before.cut else len(before.text)
        return replace(after, finish="stop") if self.mark in after.text[begins : after.steps[-1]] else after


@checked
@dataclass(frozen=True, slots=True)
class Tokens:
    """Generate `count` tokens, or fewer if the sequence ends. Raises InputError for a count below 1."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"a block has at least 1 token, got {self.count!r}")


Until = Step | Tokens | None
