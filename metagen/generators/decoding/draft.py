"""What proposes tokens to an engine, so that one pass of its model yields several: speculative sampling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from annotated_types import Ge, Le

from metagen import parts
from metagen.errors import InputError
from metagen.values import Count, Expects, Integer

#: Drafts of one row, at most: what the random numbers are keyed by has room for so many.
MOST_DRAFTS: Final = 64
Verify = Literal["token", "block"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A small model, or the text itself, that drafts what the engine's model then verifies.

    model: as that of the engine, with the same vocabulary; None: lookup. tokens: γ, drafted for one pass at most.
    verify: "block" keeps the more, "token" is the first published rule; None is block verification of one draft, and
    token by token of several. drafts: k drafts at once, of which one is kept by SpecTr's selection. adapt: γ begins at
    `tokens` and follows what was kept: two more after a block that was kept whole (up to twice `tokens`), one less
    after another. ngram: of lookup, the longest end of the text that is looked for in it.

    Sampled texts have the distribution that they have without a draft, but they are others; greedy ones are the same.
    """

    model: str | Path | Any | None
    tokens: Count = 4
    verify: Annotated[Verify | None, Expects("'block', 'token', or None for the one that fits")] = None
    drafts: Annotated[int, Ge(1), Le(MOST_DRAFTS), Expects(f"an integer from 1 to {MOST_DRAFTS}")] = 1
    adapt: bool = False
    ngram: Integer = 0

    def __post_init__(self) -> None:
        parts.check(self, "draft: ")

        def expect(ok: bool, name: str, what: str) -> None:
            if not ok:
                raise InputError(f"draft: {name}={getattr(self, name)!r}: {what}")

        several = self.drafts > 1
        expect(
            not (several and self.verify == "block"),
            "verify",
            "one of several drafts is kept token by token; leave verify out, or give drafts=1",
        )
        if self.model is None:
            expect(self.ngram >= 1, "ngram", "a lookup looks for at least 1 token; use 3")
            expect(not several, "drafts", "a text is looked up once; give drafts=1, or a model that drafts")
        else:
            expect(self.ngram == 0, "ngram", "belongs to Draft.lookup; leave it out of a draft by a model")

    @classmethod
    def lookup(
        cls, tokens: int = 8, *, ngram: int = 3, verify: Verify | None = None, adapt: bool = False
    ) -> Self:
        """What followed the newest tokens, at most `ngram` of them, where they occurred last before (Saxena 2023)."""
        return cls(None, tokens, verify, 1, adapt, ngram)

    @property
    def rule(self) -> Verify:
        return self.verify or ("token" if self.drafts > 1 else "block")

    def describes(self, model: str) -> str:
        """What sampled tokens depend on, for a fingerprint. model: fingerprint of the draft's; empty for lookup."""
        return repr((model, self.tokens, self.rule, self.drafts, self.adapt, self.ngram))
