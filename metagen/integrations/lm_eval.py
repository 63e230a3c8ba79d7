"""For lm-eval: strategies as a model that continues texts or answers chats, `metagen`.

`python -m metagen.integrations.lm_eval run --model metagen --model_args file=served.yaml,model=vote …` is lm-eval's own
command, which knows this model.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as error:
    raise ImportError(
        "metagen.integrations.lm_eval needs lm-eval: pip install lm-eval beside metagen", name=error.name
    ) from error

from metagen.errors import InputError, UnsupportedError
from metagen.integrations.local import Local, Served, given
from metagen.serve.protocol import SAME
from metagen.strategies.base import wait

#: Tokens of a text, where a task says nothing, as for lm-eval's other models.
LENGTH = 256


class Chat(str):
    """The turns of a chat as JSON, in place of the text that a model's own template makes of them."""

    __slots__ = ()


@register_model("metagen")
class MetagenLM(LM):
    """Texts are continued by a strategy; likelihoods, which a strategy has none of, are refused.

    file: of an experiment; or strategies, by name or one alone. model: which of them, where there are several.
    own_sampling: temperature and other sampling parameters of tasks are not looked at: nearly all tasks ask for greedy
    samples, which a strategy that compares samples refuses. seed: of each text; the next ones for texts that are asked
    for several times (`repeats`). concurrency: texts at work at a time.
    With `apply_chat_template` it is asked by turns.
    """

    def __init__(
        self,
        file: Served | None = None,
        model: str | None = None,
        own_sampling: bool | None = None,
        seed: int = 1234,
        concurrency: int = 64,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        self._local = Local(given(file, "--model_args file=served.yaml"), own_sampling=own_sampling)
        self._fields = {"seed": seed} | ({} if model is None else {"model": model})
        self._concurrency = concurrency

    @property
    def tokenizer_name(self) -> str:
        """Names the chat template, for lm-eval's cache of requests."""
        return "turns"

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Keep the turns: the engine behind the strategy applies its own template."""
        return Chat(json.dumps(chat_history, ensure_ascii=False))

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Empty: templates are the engines' own. Raises UnsupportedError for one by name."""
        if isinstance(chat_template, str) and chat_template:
            raise UnsupportedError(
                f"apply_chat_template={chat_template!r}: a strategy has no templates by name; give "
                "apply_chat_template=True, and the template of its engine is used"
            )
        return ""

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return wait(self._all(requests))

    async def _all(self, requests: list[Instance]) -> list[str]:
        places = asyncio.Semaphore(self._concurrency)
        seen = Counter[str]()

        async def one(request: Instance, number: int) -> str:
            context, asked = request.args
            fields = {**self._fields, **_fields(asked)}
            fields["seed"] += number
            async with places:
                if isinstance(context, Chat):
                    answer = await self._local.answer("chat", fields | {"messages": json.loads(context)})
                else:
                    answer = await self._local.answer("text", fields | {"prompt": context})
            (choice,) = answer["choices"]
            text: str = choice["message"]["content"] if isinstance(context, Chat) else choice["text"]
            self.cache_hook.add_partial("generate_until", request.args, text)
            return text

        tasks = []
        for request in requests:
            # A task with repeats sends one request several times, and wants other samples each time.
            same = json.dumps([type(request.args[0]).__name__, *request.args], sort_keys=True, default=repr)
            tasks.append(asyncio.ensure_future(one(request, seen[same])))
            seen[same] += 1
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()  # where one has failed, nobody waits for the others

    def loglikelihood(self, requests: list[Instance]) -> NoReturn:
        raise UnsupportedError(
            "a strategy has no likelihood of a given text; choose a task of the type generate_until, or evaluate the "
            "model below it by lm-eval's own model hf"
        )

    def loglikelihood_rolling(self, requests: list[Instance]) -> NoReturn:
        self.loglikelihood(requests)


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that a task's `generation_kwargs` stand for."""
    known = dict(asked)
    stop = known.pop("until", None) or []
    # A task without any leaves the stops of the file as they are.
    fields: dict[str, Any] = {"stop": [stop] if isinstance(stop, str) else list(stop)} if stop else {}
    names = ("max_gen_toks", "max_new_tokens", "max_tokens")
    lengths = {name: length for name in names if (length := known.pop(name, None)) is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}={length!r}" for name, length in lengths.items())
        raise InputError(f"generation_kwargs: {told}: all of them are the most tokens of a text; give one")
    fields["max_tokens"] = next(iter(lengths.values()), LENGTH)
    drawn = known.pop("do_sample", None)
    # As for lm-eval's other models: greedy, unless a task asks for samples.
    fields["temperature"] = known.pop("temperature", 1.0 if drawn else 0.0)
    if drawn is False:
        fields["temperature"] = 0.0
    fields |= {name: known.pop(name) for name in SAME if name in known}
    if known:
        raise UnsupportedError(
            f"generation_kwargs.{next(iter(known))}: not supported here; expected until, max_gen_toks, do_sample or "
            f"{', '.join(SAME)}"
        )
    return fields


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
