"""A small server that speaks as vLLM does, over the torch engine: real models behind real HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from metagen.generators.engine import EvaluateRequest, GenerateRequest, Sample, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence
from tests.generators.openai.serving import Asked, Handler, Reply

CACHED = "prompt_tokens_details"


def serves(engine: TorchEngine, *, details: bool = True) -> Handler:
    """Completions and chats of an engine with one token for each character. details: whether the tokens that were read
    from a cache are told, where one prompt was asked for.
    """
    return Model(engine, details).handle


class Model:
    """Stops are found after the fact: a text that stops earlier is the beginning of one that goes on."""

    def __init__(self, engine: TorchEngine, details: bool = True) -> None:
        self.engine, self.details = engine, details
        self.tokenizer = engine._tokenizer
        (self.eos,) = self.tokenizer.eos
        (self.bos, *_) = self.tokenizer._ids("", special=True) or (None,)

    async def handle(self, asked: Asked) -> Reply:
        given = asked.body.get("prompt")
        if isinstance(given, list) and isinstance(given[0], list):
            return await self._several(asked, given)
        return await self._one(asked)

    async def _several(self, asked: Asked, prompts: list[list[int]]) -> Reply:
        """Of several prompts: their choices, and the sums of their counts."""
        replies = [await self._one(replace(asked, body=asked.body | {"prompt": ids})) for ids in prompts]
        if bad := [reply for reply in replies if reply.status != 200]:
            return bad[0]
        choices = [reply.body["choices"][0] | {"index": i} for i, reply in enumerate(replies)]
        names = ("prompt_tokens", "completion_tokens")
        usage = {name: sum(reply.body["usage"][name] for reply in replies) for name in names}
        return Reply(body=replies[0].body | {"choices": choices, "usage": usage})

    async def _one(self, asked: Asked) -> Reply:
        body, chat = asked.body, asked.path.endswith("/chat/completions")
        prefix = self._prefix(body, chat)
        ids = self.engine.render(prefix)
        if not isinstance(body.get("prompt", ""), str) and list(ids) != body["prompt"]:
            return Reply(422, {"error": {"message": f"{body['prompt']} is read as {ids}"}})
        if len(ids) + body["max_tokens"] > self.engine.max_context:
            return Reply(400, {"error": {"message": f"{len(ids)} tokens are too long", "code": 400}})
        n = body.get("n", 1)
        params = SamplingParams(
            temperature=body["temperature"],
            top_p=body.get("top_p", 1.0),
            top_k=max(body.get("top_k", 0), 0),
            stop_token_ids=tuple(body.get("stop_token_ids") or ()),
            ignore_eos=body.get("ignore_eos", False),
            logprobs=True,
        )
        seeds = tuple(body.get("seed", 0) + i for i in range(n))
        made = await self.engine.generate(GenerateRequest(prefix, seeds, params, body["max_tokens"]))
        choices = [await self._choice(i, sample, ids, body, chat) for i, sample in enumerate(made.samples)]
        generated = sum(len(choice["token_ids"]) for choice in choices)
        usage: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": generated}
        if n == 1 and self.details:
            usage[CACHED] = {"cached_tokens": made.cached}
        if body.get("prompt_logprobs") is not None:
            choices[0]["prompt_logprobs"] = await self._of_prompt(ids)
        if not body.get("return_token_ids"):
            for choice in choices:
                del choice["token_ids"]
        answer = {"id": "x", "model": body["model"], "choices": choices, "usage": usage}
        return streamed(answer) if body.get("stream") else Reply(body=answer)

    def _prefix(self, body: dict[str, Any], chat: bool) -> Sequence:
        """Turns of a chat are written one behind the other: this model knows no template."""
        if chat:
            return Sequence.of(Prompt("p", text="".join(m["content"] for m in body["messages"])))
        given = body["prompt"]
        if isinstance(given, str):
            return Sequence.of(Prompt("p", text=given))
        text = self.tokenizer.decode([i for i in given if i != self.bos])
        return Sequence.of(Prompt("p", text=text))

    async def _choice(
        self, number: int, sample: Sample, prompt: tuple[int, ...], body: dict[str, Any], chat: bool
    ) -> dict[str, Any]:
        ids, text = [*(sample.ids or ())], sample.text
        ended = {"eos": ("stop", None), "length": ("length", None), "stop": ("stop", "?")}[
            sample.finish or "length"
        ]
        if sample.finish == "eos":
            ids.append(self.eos)
        if sample.finish == "stop":
            (last,) = body["stop_token_ids"]
            ids, ended = [*ids, last], ("stop", last)
        finish, reason = ended
        stops = [(text.find(s) + len(s), s) for s in body.get("stop") or () if s in text]
        if stops:
            end, reason = min(stops)
            ids, finish = ids[: self._tokens(ids, end)], "stop"
            text = text[:end] if body.get("include_stop_str_in_output") else text[: end - len(reason)]
        choice: dict[str, Any] = {
            "index": number, "text": text, "finish_reason": finish, "stop_reason": reason, "token_ids": ids,
        }  # fmt: skip
        if chat:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        if body.get("logprobs"):
            wanted = body.get("top_logprobs", 0) if chat else body["logprobs"]
            choice["logprobs"] = await self._logprobs(prompt, ids, sample, wanted, body, chat)
        return choice

    def _tokens(self, ids: list[int], end: int) -> int:
        """How many of the ids write so many characters."""
        return next(k for k in range(1, len(ids) + 1) if len(self.tokenizer.decode(ids[:k])) >= end)

    async def _vocabulary(self, ids: tuple[int, ...], positions: range) -> list[list[float]]:
        labels = tuple(range(self.tokenizer.vocab_size))
        (read,) = await self.engine.evaluate([EvaluateRequest(ids, tuple(positions), labels)])
        return [list(row) for row in read.values]

    async def _logprobs(
        self,
        prompt: tuple[int, ...],
        ids: list[int],
        sample: Sample,
        k: int,
        body: dict[str, Any],
        chat: bool,
    ) -> dict[str, Any]:
        start = len(prompt) - 1
        rows = await self._vocabulary((*prompt, *ids), range(start, start + len(ids)))
        own = list(sample.token_logprobs or ())[: len(ids)]
        tops = []
        for row in rows:
            best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
            shown = body.get("logprob_token_ids") or best
            tops.append({self._named(i, body): row[i] for i in shown})
        tokens = [self._named(i, body) for i in ids]
        if not chat:
            return {"tokens": tokens, "token_logprobs": own, "top_logprobs": tops}
        content = [
            {"token": t, "logprob": v, "top_logprobs": [{"token": a, "logprob": b} for a, b in top.items()]}
            for t, v, top in zip(tokens, own, tops, strict=True)
        ]
        return {"content": content}

    def _named(self, i: int, body: dict[str, Any]) -> str:
        return f"token_id:{i}" if body.get("return_tokens_as_token_ids") else self.tokenizer.decode([i])

    async def _of_prompt(self, ids: tuple[int, ...]) -> list[dict[str, Any] | None]:
        rows = await self._vocabulary(ids, range(len(ids)))
        return [None] + [{str(i): {"logprob": rows[p][i], "rank": 1}} for p, i in enumerate(ids[1:])]


def streamed(answer: dict[str, Any]) -> Reply:
    """An answer as events: the text in parts of three characters, all else with the last of them."""
    choices, chunks = answer["choices"], []
    for choice in choices:
        message = choice.get("message")
        text = choice["text"] if message is None else message["content"]
        for at in range(0, len(text) - 3, 3):
            chunks.append(_part(choice["index"], text[at : at + 3], message is not None))
        rest = text[3 * len(range(0, len(text) - 3, 3)) :]
        last = {name: value for name, value in choice.items() if name not in ("text", "message")}
        chunks.append(last | _part(choice["index"], rest, message is not None))
    events = [{"choices": [chunk]} for chunk in chunks] + [{"choices": [], "usage": answer["usage"]}]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    body = "".join([*lines, "data: [DONE]\n\n"]).encode()
    return Reply(body=body, headers={"content-type": "text/event-stream"})


def _part(index: int, text: str, chat: bool) -> dict[str, Any]:
    return {"index": index, **({"delta": {"content": text}} if chat else {"text": text})}
