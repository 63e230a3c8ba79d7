"""A retriever over a local corpus: BM25 (Robertson & Zaragoza 2009), by bm25s."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from metagen.errors import InputError, UnsupportedError, install
from metagen.sequence import digest
from metagen.strategies.tools import Tool

_WORD: Final = re.compile(r"\w+")
_SAY_NOTHING: Final = """
a an and are as at be by did do does for from had has have how in is it its of on or that the this to was were
what when where which who whom whose why will with
"""
#: Words that say nothing about what a question is about.
STOPWORDS: Final = frozenset(_SAY_NOTHING.split())


class BM25:
    """Passages by relevance: Σ over the words q of the query of IDF(q) · f / (f + k1·(1 − b + b·|d|/mean |d|)).

    f: how often q is in the passage d; IDF(q) = ln(1 + (N − n + ½)/(n + ½)) for n of N passages with q, as in Lucene,
    which leaves the constant k1 + 1 out. Words are letters and digits in lower case, without STOPWORDS and
    without stemming. Equally relevant passages come in the order of the corpus, and those that share no word with
    the query do not come. Needs the extra `retrieval`. Raises InputError for no passages, or one without words, and
    UnsupportedError without the library bm25s.
    """

    def __init__(self, passages: Iterable[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        try:
            bm25s: Any = import_module("bm25s")
        except ImportError as error:
            raise UnsupportedError(
                f"BM25 needs 'bm25s', which cannot be imported ({error}); {install('retrieval')}"
            ) from error
        self.passages = tuple(passages)
        if not self.passages or not all(map(words, self.passages)):
            raise InputError("the corpus is empty, or a passage of it has no words; give passages with text")
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        self._index.index([words(p) for p in self.passages], show_progress=False)
        self._known = {word for p in self.passages for word in words(p)}
        self.fingerprint = digest("bm25", str(k1), str(b), *self.passages).hex()

    def search(self, query: str, k: int = 1) -> list[str]:
        """The at most k passages that are most relevant."""
        wanted = [word for word in words(query) if word in self._known]
        if not wanted:
            return []
        scores = self._index.get_scores(wanted)
        order = sorted(range(len(self.passages)), key=lambda i: (-float(scores[i]), i))
        return [self.passages[i] for i in order[:k] if scores[i] > 0]

    def tool(self, *, k: int = 1, name: str = "search") -> Tool:
        """The retriever as a tool `search(query)`, which gives k passages."""

        def search(query: str) -> list[str]:
            """Search the corpus for passages about a query."""
            return self.search(query, k)

        return Tool(search, name=name, version=f"{self.fingerprint} {k}")


def words(text: str) -> list[str]:
    """The words of a text that tell what it is about."""
    return [word for word in _WORD.findall(text.lower()) if word not in STOPWORDS]
