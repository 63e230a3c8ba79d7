"""its_hub, as its documentation uses it: a client of the server, steps that end with a line, a reward model."""

from __future__ import annotations

import asyncio
from typing import Any

from its_hub.api import AbstractOutcomeRewardModel, AbstractProcessRewardModel
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.bon import BestOfN
from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
from its_hub.core.algorithms.self_consistency import SelfConsistency
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
from its_hub.core.lms.step_generation import StepGeneration
from its_hub.core.orchestrator import LMOrchestrator

from benchmarks.rivals.plain import Asking
from benchmarks.rivals.servers import WRITER

#: As many requests at a time as the library would be given by somebody who wants it fast.
AT_ONCE = 256
STEPS = 25


class Values(AbstractProcessRewardModel, AbstractOutcomeRewardModel):
    """The reward model of the plain client. Equal texts of one call are read once."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking

    def score(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError("all goes by ascore")

    async def ascore(self, said: Any, steps: Any = None, **more: Any) -> Any:
        if steps is None:  # conversations, each of a question and an answer
            return await asyncio.gather(
                *(self.asking.value(str(asked.content), str(answer.content)) for *_, asked, answer in said)
            )
        prompt = said if isinstance(said, str) else said.to_prompt()
        several = [steps] if isinstance(steps, str) else list(steps)
        different = list(dict.fromkeys(several))
        values = await asyncio.gather(*(self.asking.value(prompt, text) for text in different))
        found = dict(zip(different, values, strict=True))
        return found[steps] if isinstance(steps, str) else [found[text] for text in several]


class Hub:
    """One client, and the algorithms that use it."""

    def __init__(self, asking: Asking, tokens: int, mark: str, key: Any) -> None:
        self.lm = OpenAICompatibleLanguageModel(
            endpoint=asking.writer, api_key="none", model_name=WRITER, temperature=1.0, max_tokens=tokens
        )
        steps = StepGeneration(
            max_steps=STEPS,
            step_token="\n",
            stop_token=mark,
            temperature=1.0,
            include_stop_str_in_output=True,
        )
        values, many = Values(asking), LMOrchestrator(max_concurrency=AT_ONCE)
        self._made = {
            "majority": SelfConsistency(key, orchestrator=many),
            "best of n": BestOfN(values, orchestrator=many),
            "beams": BeamSearch(steps, values, beam_width=4),
            "particles": ParticleFiltering(steps, values),
        }

    async def solve(self, name: str, prompt: str, n: int) -> str:
        answer = await self._made[name].ainfer(self.lm, prompt, n)
        return str(answer["content"] or "")

    async def close(self) -> None:
        await self.lm.close()
