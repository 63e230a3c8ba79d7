"""What a user writes without a library: one session, one request for a problem's samples, one for a reading."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import aiohttp

from benchmarks.rivals.servers import JUDGE, WRITER
from metagen.generators.openai import OpenAIEngine
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.reward import ProcessRewardModel


class Asking:
    """A session on both servers, and what went over it."""

    def __init__(self, writer: str, judge: str, reader: OpenAIEngine) -> None:
        self.writer, self.judge = writer, judge
        self._laid = ProcessRewardModel(reader)
        self._labels = [reader.encode(label)[0] for label in self._laid.layout.labels or ()]
        self.requests = self.generated = 0
        self.session: aiohttp.ClientSession

    async def __aenter__(self) -> Asking:
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.close()

    async def post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            self.requests += 1
            try:
                async with self.session.post(url, json=body) as response:
                    answer: dict[str, Any] = await response.json()
            except aiohttp.ClientConnectionError:  # a busy server closes connections that it takes for idle
                continue
            if response.status != 200:
                raise RuntimeError(f"{url} answered {response.status}: {answer}")
            return answer

    async def samples(self, prompt: str, n: int, tokens: int) -> list[str]:
        """So many completions, by one request."""
        body = {"model": WRITER, "prompt": prompt, "n": n, "temperature": 1.0, "max_tokens": tokens}
        answer = await self.post(f"{self.writer}/completions", body)
        self.generated += answer["usage"]["completion_tokens"]
        return [choice["text"] for choice in answer["choices"]]

    async def value(self, prompt: str, text: str) -> float:
        """The reward model's p(right) of the last step, by one request; 0 for nothing."""
        reading = self._laid._read(Sequence(Prompt("p", text=prompt), text))
        if not reading.laid.ids:
            return 0.0
        right, wrong = self._labels
        body = {
            "model": JUDGE, "prompt": list(reading.laid.ids), "max_tokens": 1, "temperature": 0.0, "logprobs": 1,
            "logprob_token_ids": self._labels, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        answer = await self.post(f"{self.judge}/completions", body)
        (found,) = answer["choices"][0]["logprobs"]["top_logprobs"]
        odds = found[f"token_id:{right}"] - found[f"token_id:{wrong}"]
        return 1.0 / (1.0 + math.exp(-odds))


async def majority(asking: Asking, prompt: str, n: int, tokens: int, key: Any) -> str:
    texts = await asking.samples(prompt, n, tokens)
    answers = [key(text) for text in texts]
    best = Counter(answer for answer in answers if answer is not None).most_common(1)
    return texts[answers.index(best[0][0])] if best else texts[0]


async def best_of(asking: Asking, prompt: str, n: int, tokens: int, key: Any) -> str:
    texts = await asking.samples(prompt, n, tokens)
    different = list(dict.fromkeys(texts))
    values = await asyncio.gather(*(asking.value(prompt, text) for text in different))
    return max(zip(values, different, strict=True))[1]
