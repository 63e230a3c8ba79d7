"""Engines with drafts keep the laws of engines."""

from __future__ import annotations

from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import Engine
from metagen.generators.torch import TorchEngine
from metagen.testing import EngineLaws


class Drafted(EngineLaws):
    """Of two prompts it is sure, of two it is not."""

    prompts = (
        "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips = 0.05
    most = 32
    many = 400
    draft = Draft("tiny-0.1m", 3)

    def make(self) -> Engine:
        return TorchEngine("tiny-0.5m", threads=1, max_batch=64, draft=self.draft)


class TestBlocks(Drafted):
    pass


class TestSeveralDrafts(Drafted):
    draft = Draft("tiny-0.1m", 2, drafts=2)


class TestLookup(Drafted):
    draft = Draft.lookup(4, ngram=2, adapt=True)
