"""Nothing hangs in silence: what never ends, or gives no news, is an error that says how to go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from metagen.errors import EngineError, ModelError
from metagen.generators.engine import Evaluated, EvaluateRequest, Generated, GenerateRequest
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.watch import watch_evaluation
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence
from metagen.testing import run
from tests.chat_model import chat_model

PREFIX = Sequence.of("What is it?")
#: Seconds after which something is taken to hang.
PATIENCE = 120.0


def test_a_chat_template_that_never_ends_is_an_error_that_names_it(tmp_path: Path) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (chat_model(tmp_path / "model") / "chat_template.jinja").write_text(endless)
    begun = threading.active_count()
    tokenizer = Tokenizer(tmp_path / "model", 512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metagen.generators.tokenizer.LIMIT", 0.5)
        with pytest.raises(ModelError, match=r"model: the chat template took longer than 0\.5 s for 1 turns"):
            tokenizer.render(Sequence.of([{"role": "user", "content": "hello"}]))
    for thread in threading.enumerate():
        if thread.name == "metagen-bounded":
            thread.join(PATIENCE)
    assert threading.active_count() <= begun


# -- no news ------------------------------------------------------------------------------------------------------


class Silent(EnumerableEngine):
    """Never answers, and moves a counter `moves` times, 0.2 s apart."""

    silence = 0.6
    moves = 0

    async def generate(self, request: GenerateRequest) -> Generated:
        for _ in range(self.moves):
            await asyncio.sleep(0.2)
            self.stats.extra["steps"] = self.stats.extra.get("steps", 0) + 1
        if self.moves:
            return await super().generate(request)
        request.note(0, Drawn("told", None, None, finish="eos"))
        await asyncio.Event().wait()
        raise AssertionError

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        await asyncio.Event().wait()
        raise AssertionError


def silent() -> Silent:
    return Silent(("a", "b", "$"), lambda prompt, done: [0.4, 0.4, 0.2], name="silent")


def test_an_engine_without_news_is_an_error_with_the_way_on_and_keeps_what_has_ended() -> None:
    engine, journal = (
        Silent(("a", "b", "$"), lambda prompt, done: [0.4, 0.4, 0.2], name="silent"),
        MemoryJournal(),
    )
    with pytest.raises(
        EngineError, match=r"no news from .* for 0.6 s: .* `metagen resume DIRECTORY` goes on"
    ):
        run(lambda s: engine.generator(max_tokens=4).generate(PREFIX, n=2, scope=s), journal=journal)
    assert [row.payload for row in journal.of_problem("law")] == [{"text": "told", "finish": "eos"}]
    with pytest.raises(EngineError, match="no news from"):
        asyncio.run(watch_evaluation(engine, []))


def test_an_engine_that_is_slow_and_moves_is_waited_for() -> None:
    with silent() as engine:
        engine.moves, engine.silence = 15, 2.0
        made, _ = run(lambda s: engine.generator(max_tokens=4).generate(PREFIX, n=2, scope=s))
    assert len(made) == 2
