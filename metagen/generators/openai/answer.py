"""What a server answers, read with suspicion: its shape is checked, and a count that cannot be is unknown."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from metagen.generators.openai.stream import is_stream, join_stream
from metagen.generators.tool_calls import write_calls

#: TGI's word for an end by a stop string, which it leaves in the text.
STOPPED = "stop_sequence"
#: Why a completion can have ended; what is none of these was no answer.
ENDED = ("stop", "length", "content_filter", "tool_calls", "function_call", "eos")
#: Other names of these reasons: by Hugging Face's TGI, Mistral, gateways to Anthropic, Gemini (behind a colon: why).
OTHERS = {
    STOPPED: "stop", "eos_token": "eos", "model_length": "length", "end_turn": "eos", "max_tokens": "length",
    "tool_use": "tool_calls", "refusal": "content_filter", "function_call_filter": "content_filter",
}  # fmt: skip

#: Bytes of a token, at most. The longest of vocabularies in use are runs of 128 spaces.
LONGEST = 256


class Malformed(ValueError):
    """An answer that is not one."""


class _Read(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Usage(_Read):
    # Counts are judged one by one: a wrong one spoils no answer.
    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    # Where some servers count thoughts.
    reasoning_tokens: Any = None


class _Message(_Read):
    """What servers call a thought: `reasoning` (vLLM, OpenRouter, Groq), `reasoning_content` (DeepSeek, SGLang,
    llama.cpp, earlier vLLM), `reasoning_details` (OpenRouter), or parts of the content of type `thinking` (Mistral).
    """

    content: str | list[Any] | None = None
    #: What a model says in place of an answer that it declines.
    refusal: Any = None
    # Judged one by one: some servers put other things there.
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    # Calls of tools that the request told of.
    tool_calls: Any = None

    @property
    def full_text(self) -> str:
        """What it says; behind that its calls of tools, as texts."""
        calls = self.tool_calls if isinstance(self.tool_calls, list) else []
        written = write_calls(call for call in calls if isinstance(call, dict))
        return "\n".join(part for part in (self._said, written) if part)

    @property
    def _said(self) -> str:
        if isinstance(self.content, list):
            parts = (*_parts(self.content, "text"), *_parts(self.content, "refusal"))
            return "".join(parts)
        return self.content or (self.refusal if self.declined else "")

    @property
    def declined(self) -> bool:
        """Whether it is a refusal, told in a field of its own."""
        if isinstance(self.content, list):
            return any(_parts(self.content, "refusal"))
        return not self.content and isinstance(self.refusal, str) and bool(self.refusal)

    @property
    def thought(self) -> str | None:
        """What was thought before; None if nothing is shown."""
        for told in (self.reasoning, self.reasoning_content):
            if isinstance(told, str) and told:
                return told
        if isinstance(self.reasoning_details, list):
            pieces = [*_parts(self.reasoning_details, "text"), *_parts(self.reasoning_details, "summary")]
            return "".join(pieces) or None
        return "".join(_parts(self.content, "thinking")) or None if isinstance(self.content, list) else None


def _parts(parts: list[Any], kind: str) -> list[str]:
    """The texts of the parts of a kind, which may hold parts again."""
    found: list[str] = []
    for part in parts:
        value = part.get(kind) if isinstance(part, dict) else None
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += _parts(value, "text")
    return found


class _Candidate(_Read):
    token: str
    logprob: float


class _Position(_Candidate):
    top_logprobs: list[_Candidate] | None = None


class _Logprobs(_Read):
    """In the form of chats (content), or of completions (the others)."""

    content: list[_Position] | None = None
    refusal: list[_Position] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    @property
    def positions(self) -> list[_Position] | None:
        """Of a chat: of the answer, or of the refusal in its place."""
        return self.refusal if self.content is None else self.content


class Choice(_Read):
    """One completion."""

    index: int | None = None
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    matched_stop: int | str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None

    @property
    def full_text(self) -> str:
        """The text of the completion."""
        return (self.text or "") if self.message is None else self.message.full_text

    @property
    def declined(self) -> bool:
        """Whether it is a refusal, told in a field of its own."""
        return self.message is not None and self.message.declined

    @property
    def calls(self) -> int:
        """Calls of tools that the server has read from the text, as far as they can be written."""
        calls = None if self.message is None else self.message.tool_calls
        return (
            sum(bool(write_calls([c])) for c in calls if isinstance(c, dict))
            if isinstance(calls, list)
            else 0
        )

    @property
    def thought(self) -> str | None:
        """What was thought before that, where the server tells it apart."""
        return None if self.message is None else self.message.thought

    @property
    def least(self) -> int:
        """Tokens that it has at least. No end is reached without one."""
        return max(
            1, len(self.token_ids or ()), len(self.full_text.encode("utf-8", "surrogatepass")) // LONGEST
        )

    @property
    def finish(self) -> str:
        """Why it ended, in OpenAI's words where there is one."""
        reason = (self.finish_reason or "").partition(":")[0]
        return OTHERS.get(reason, reason)

    def find_stop(self, field: str | None) -> int | str | None:
        """The stop that ended it, as the server tells it in a field of its own."""
        if field == "stop_reason":
            return self.stop_reason
        return self.matched_stop if field == "matched_stop" else None

    def token_logprobs(self) -> list[float] | None:
        """One for each token; None if some are not there."""
        given = self.logprobs
        if given is None:
            return None
        places = given.positions
        values = [p.logprob for p in places] if places is not None else given.token_logprobs
        return None if values is None or None in values else [float(v) for v in values if v is not None]

    @property
    def names_once(self) -> bool:
        """Whether the most probable tokens of a place are told by name, each name once, as completions do."""
        return self.logprobs is not None and self.logprobs.positions is None

    def most_probable(self) -> list[list[tuple[str, float]]] | None:
        """For each token the most probable ones at its place, by name, as many as were sent; None if they are not."""
        given = self.logprobs
        if given is None:
            return None
        if given.positions is not None:
            return [[(c.token, c.logprob) for c in p.top_logprobs or ()] for p in given.positions]
        if given.top_logprobs is None:
            return None
        return [list((place or {}).items()) for place in given.top_logprobs]


class Answer(_Read):
    """The answer to one request."""

    choices: list[Choice]
    usage: _Usage | None = None
    # llama.cpp's server has it. Of several choices it counts the tokens of one.
    timings: Any = None

    @classmethod
    def read(cls, content: bytes, n: int) -> Self:
        """From the body of a response. Malformed if it is no answer with choices, n at most, in some order."""
        try:
            streamed = is_stream(content)
            answer = (
                cls.model_validate(_parse_stream(content)) if streamed else cls.model_validate_json(content)
            )
        except ValidationError as error:
            faults = error.errors(include_input=False, include_url=False, include_context=False)
            # No deeper: names further in are the server's, which may be the key that it was sent.
            what = "; ".join(f"{'.'.join(map(str, f['loc'][:2])) or 'body'}: {f['type']}" for f in faults[:3])
            raise Malformed(f"its answer of {len(content)} bytes is not as expected ({what})") from None
        if not 1 <= len(answer.choices) <= n:
            raise Malformed(f"it gave {len(answer.choices)} choices where {n} were asked for")
        if other := [c.finish_reason for c in answer.choices if c.finish not in ENDED]:
            raise Malformed(f"a choice ended by the finish_reason {other[0]!r}, which is no end")
        indices = sorted(c.index for c in answer.choices if c.index is not None)
        if indices and indices != list(range(len(answer.choices))):
            raise Malformed(
                f"its choices are numbered {indices[:10]!r}, expected 0 to {len(answer.choices) - 1}"
            )
        return answer

    @property
    def choices_in_order(self) -> abc.Sequence[Choice]:
        """The choices by their number."""
        return sorted(self.choices, key=lambda choice: choice.index or 0)

    def counts(self, most_prompt: int, most_new: int) -> Counts:
        """The tokens that the server counted; what is missing or cannot be is unknown.

        most_prompt, most_new: tokens that the prompt, and all choices together, can have at most.
        """
        usage, wrong = self.usage or _Usage(), 0
        prompt, bad = _count(usage.prompt_tokens, 1, most_prompt)
        wrong += bad
        least = sum(choice.least for choice in self.choices)
        thought = _thinking(usage)
        written = usage.completion_tokens
        if beside := _beside(usage, thought):
            written, thought = written + beside, thought or None
        new, bad = _count(written, least, most_new)
        wrong += bad
        if self.timings is not None and len(self.choices) > 1 and new is not None:
            new, wrong = None, wrong + 1
        thought, bad = (None, 0) if new is None else _count(thought, 0, new)
        wrong += bad
        details = usage.prompt_tokens_details
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        cached, bad = _count(cached, 0, most_prompt if prompt is None else prompt)
        return Counts(prompt, cached, new, wrong + bad, thought)


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of a prompt, those of them read from a cache, tokens of all choices; None if unknown.

    wrong: how many of them were given and cannot be. thought: of the new ones, those that were thought before answers.
    """

    prompt: int | None
    cached: int | None
    new: int | None
    wrong: int = 0
    thought: int | None = None


def _parse_stream(content: bytes) -> dict[str, Any]:
    try:
        return join_stream(content)
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError) as error:
        raise Malformed(
            f"its stream of {len(content)} bytes is not as expected ({type(error).__name__})"
        ) from None


def _thinking(usage: _Usage) -> int | None:
    details = usage.completion_tokens_details
    told = details.get("reasoning_tokens") if isinstance(details, dict) else None
    told = usage.reasoning_tokens if told is None else told
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def _beside(usage: _Usage, thought: int | None) -> int:
    """Tokens that the total has beside prompt and completion: some servers count thoughts there, and Gemini's tells
    nowhere else that there are any. 0 where the total is none of this kind.
    """
    counts = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
        return 0
    more = int(usage.total_tokens - usage.prompt_tokens - usage.completion_tokens)
    return more if more > 0 and thought in (None, 0, more) else 0


def _count(value: Any, least: int, most: int) -> tuple[int | None, int]:
    """A count, and whether it was given and cannot be."""
    if value is None:
        return None, 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return None, 1
    return value, 0
