"""The tokenizer of a model directory: prompts to ids, chat templates, and ids to text."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from metagen.errors import ModelError, PromptError, UnsupportedError
from metagen.generators.bounded import run_bounded
from metagen.generators.continuation import BROKEN
from metagen.generators.decoding.constraint import Constraints
from metagen.generators.directory import chat_template, read_json
from metagen.generators.tool_calls import tools_of
from metagen.sequence import Form, Message, Prompt, Sequence, TokenIds

REMEMBERED = 4096


#: Seconds that a chat template may take for one prompt.
LIMIT = 10.0


def apply_template(tokenizer: Any, turns: list[dict[str, str]], directory: Path, **options: Any) -> str:
    """The turns by a tokenizer's chat template. ModelError if that takes longer than `LIMIT` seconds."""
    return str(
        run_bounded(
            lambda: tokenizer.apply_chat_template(turns, tokenize=False, **options),
            LIMIT,
            lambda: ModelError(
                f"{directory}: the chat template took longer than {LIMIT:g} s for {len(turns)} turns; mend its loops, "
                "or send plain text (form='text')"
            ),
        )
    )


def _reads_tools(template: str) -> bool:
    """Whether a template has the variable `tools`."""
    from jinja2 import Environment, TemplateError

    try:
        return any(token[1:] == ("name", "tools") for token in Environment(autoescape=False).lex(template))
    except TemplateError:  # which says more when it is applied
        return False


class Tokenizer:
    """Ids of prompts and texts; thread-safe.

    `eos` are the ids that end a completion: of generation_config.json, else config.json, else the
    tokenizer's end-of-sequence token. `chat` names the chat template; None if there is none. Raises ModelError for a
    directory whose tokenizer.json cannot be read.
    """

    def __init__(self, directory: Path, vocab_size: int) -> None:
        self.directory = directory
        path = directory / "tokenizer.json"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(
                f"{path}: cannot be read ({error.strerror}); save the tokenizer in the fast format, tokenizer.json"
            ) from None
        try:
            from tokenizers import Tokenizer as HFTokenizer

            self._tokenizer = HFTokenizer.from_buffer(data)
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception for any bad file
            raise ModelError(f"{path}: not a tokenizer ({error}); copy the file again") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.fingerprint = hashlib.sha256(data).hexdigest()[:32]
        # An added token beyond them, as Gemma 3 has one for images, is refused where a prompt holds it.
        added = self._tokenizer.get_added_tokens_decoder()
        known = self._tokenizer.get_vocab(with_added_tokens=True).values()
        top = max((i for i in known if i not in added), default=-1)
        if top >= vocab_size:
            raise ModelError(
                f"{path}: token id {top} is beyond the model's vocab_size={vocab_size}; "
                "use the tokenizer that the model was trained with"
            )
        self.vocab_size = vocab_size
        self.eos = self._read_eos()
        self.chat = chat_template(directory)
        self._prompts: OrderedDict[
            tuple[str | None, tuple[Message, ...], Form | None, str, str], tuple[int, ...]
        ] = OrderedDict()
        self._lock = Lock()
        self._template: Any = None

    def encode(self, text: str) -> tuple[int, ...]:
        return self._ids(text, special=False)

    def _ids(self, text: str, *, special: bool) -> tuple[int, ...]:
        try:
            return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)
        except TypeError:
            at = next((i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
            if at is None:
                raise
            raise PromptError(
                f"{text[at]!r} at position {at} of a text of {len(text)} characters is half a character, which no "
                "tokenizer reads; remove it, or decode the text as it was encoded"
            ) from None

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens by their names."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def decode_many(self, batch: list[list[int]]) -> list[str]:
        return self._tokenizer.decode_batch(batch, skip_special_tokens=False)

    @property
    def writes_bytes(self) -> bool:
        """Whether its tokens are bytes, as those of most models, and not characters or words."""
        try:
            Constraints.of_json(self._json(), self.vocab_size, eos=self.eos)
        except (ValueError, UnsupportedError):
            return False
        return True

    def _json(self) -> str:
        """Its tokenizer.json, without added tokens that the model gives no logits of."""
        data = json.loads(self._tokenizer.to_str())
        data["added_tokens"] = [one for one in data["added_tokens"] if one["id"] < self.vocab_size]
        return json.dumps(data)

    def constraints(self) -> Constraints:
        """Grammars over this vocabulary."""
        try:
            return Constraints.of_json(self._json(), self.vocab_size, eos=self.eos)
        except ValueError:
            # Its tokens are no bytes: they are what they decode to. What is no text by itself is never allowed.
            texts = self.decode_many([[i] for i in range(self.vocab_size)])
            named = self._tokenizer.get_added_tokens_decoder()
            special = {i for i, text in enumerate(texts) if i in named or not text or BROKEN in text}
            return Constraints.of_tokens(
                [text.encode() for text in texts], special=special, eos=self.eos, encode=self.encode
            )

    def render(self, prefix: Sequence) -> tuple[tuple[int, ...], int]:
        """Ids of a prefix, and how many of them are the prompt's.

        Ids that the completion carries under this tokenizer follow those of the prompt as they are. A
        completion without ids is encoded together with its prompt, as one text; its tokens then start
        where the encoding of the prompt alone would end.
        """
        own = prefix.tokens
        if own is not None and own.tokenizer == self.fingerprint:
            head = self._render(prefix.prompt, "")
            return head + own.ids, len(head)
        written = prefix.written
        ids = self._render(prefix.prompt, written)
        if not written:
            return ids, len(ids)
        return ids, min(len(self._render(prefix.prompt, "")), len(ids))

    def token_ids(self, ids: tuple[int, ...]) -> TokenIds:
        return TokenIds(ids, self.fingerprint)

    def _render(self, prompt: Prompt, text: str) -> tuple[int, ...]:
        tools = tools_of(prompt)
        key = (prompt.text, prompt.messages, prompt.form, text, "" if tools is None else json.dumps(tools))
        with self._lock:
            if (known := self._prompts.get(key)) is not None:
                self._prompts.move_to_end(key)
                return known
        said = prompt.plain(template=self.chat is not None)
        if said is not None:
            ids = self._ids(said + text, special=True)
        else:
            ids = self.encode(self._apply_template(prompt) + text)
        if not ids:
            raise PromptError(f"prompt {prompt.problem_id!r} has no tokens under {self.directory}")
        with self._lock:
            self._prompts[key] = ids
            if len(self._prompts) > REMEMBERED:
                self._prompts.popitem(last=False)
        return ids

    def _apply_template(self, prompt: Prompt) -> str:
        """The chat template's text; a last turn of the assistant is left open, to be continued."""
        from jinja2 import TemplateError  # as transformers has it, which needs it for templates

        messages = prompt.messages
        with self._lock:
            if self._template is None:
                self._template = self._load_template()
        partial = messages[-1].role == "assistant"
        tools = tools_of(prompt)
        if tools is not None and not self.takes_tools:
            raise PromptError(
                f"prompt {prompt.problem_id!r} tells of {len(tools)} tools, and the chat template of {self.directory} "
                "has no place for any; leave them out, or use a model whose template has"
            )
        turns = [{"role": m.role, "content": m.content} for m in messages]
        begun = messages[-1].content
        # Of a blank one the library would drop the white space of the header, too.
        blank = partial and not begun.strip() and len(turns) > 1
        if blank:
            turns, partial = turns[:-1], False
        try:
            text = apply_template(
                self._template,
                turns,
                self.directory,
                add_generation_prompt=not partial,
                continue_final_message=partial,
                **({} if tools is None else {"tools": tools}),
            )
        except ModelError:
            raise
        except (TemplateError, ValueError) as error:
            raise PromptError(
                f"prompt {prompt.problem_id!r}: the chat template of {self.directory} refuses turns of "
                f"{', '.join(m.role for m in messages)} ({error}); give it turns that it knows, such as a user's alone"
            ) from None
        if blank:
            return text + begun
        # The library drops the white space at the end of an open turn; a step's delimiter may be just that.
        if partial and not text.endswith(begun) and text.endswith(begun.rstrip()):
            text += begun[len(begun.rstrip()) :]
        return text

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template has a place for tools."""
        if self.chat is None:
            return False
        with self._lock:
            if self._template is None:
                self._template = self._load_template()
            template = self._template.chat_template
        return any(map(_reads_tools, template.values() if isinstance(template, dict) else [template]))

    def _load_template(self) -> Any:
        from transformers import AutoTokenizer  # slow to import, and only templates need it

        chat = AutoTokenizer.from_pretrained(self.directory, trust_remote_code=False)
        if not chat.chat_template:
            raise UnsupportedError(
                f"{self.directory}: the tokenizer has no chat template, so messages cannot be rendered; "
                "let them be sent as plain text (form='auto', or 'text'), or add chat_template.jinja to the directory"
            )
        return chat

    def _read_eos(self) -> frozenset[int]:
        """The ends that the model's files tell, and the tokenizer's own: a fine-tune may have changed only that."""
        path = self.directory / "tokenizer_config.json"
        token = read_json(path).get("eos_token") if path.exists() else None
        text = token.get("content") if isinstance(token, dict) else token
        own = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        return self._told_eos() | (frozenset() if own is None or own >= self.vocab_size else {own})

    def _told_eos(self) -> frozenset[int]:
        for name in ("generation_config.json", "config.json"):
            path = self.directory / name
            value = read_json(path).get("eos_token_id") if path.exists() else None
            if value is not None:
                ids = [value] if isinstance(value, int) else list(value)
                if bad := [i for i in ids if not isinstance(i, int) or not 0 <= i < self.vocab_size]:
                    raise ModelError(
                        f"{path}: eos_token_id={bad[0]!r}, expected an id below {self.vocab_size}"
                    )
                return frozenset(ids)
        return frozenset()
