"""Draft, sketch, fill, check (after Draft, Sketch, and Prove, Jiang et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Final

from metagen.errors import PromptError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import Candidate, offer
from metagen.strategies.chain.steps import reply_to
from metagen.template import Template
from metagen.values import Count, Filled, Share
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.question import in_words

DRAFT: Final = "{prompt}\n\nExplain informally how it is done.\n"
SKETCH: Final = (
    "{prompt}\n\n{draft}\n\nWrite this out in full form, with {hole} in place of each part that is "
    "still to be done.\n"
)
FILL: Final = (
    "{prompt}\n\n{sketch}\n\nWrite what stands in place of {hole} number {number}, and nothing else.\n"
)


@part
class DraftSketchFill(Strategy):
    """An informal draft, a sketch with holes, the holes filled side by side, and a verifier's check of the whole.

    If the check is below `accept`, all holes are filled anew, at most `tries` times in all; the best whole wins. A
    sketch without holes is checked as it is. A whole with a sketch or a filling that was cut is cut itself: it is not
    accepted, and loses to one that is not. hole: how a hole is written. What the model has written may outgrow its
    context: then there is no whole, and the prefix is returned as it was.

    draft: has the place {prompt}. sketch: {prompt}, {draft}, {hole}. fill: {prompt}, {sketch}, {hole}, {number}.
    filler: fills holes; by default the generator. tries: fillings of all holes at most. accept: the score that ends it.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.chain.draft_sketch_fill import DraftSketchFill
        >>> def write(prefix, seed, index):
        ...     asked = prefix.prompt.text
        ...     return "42" if "number 1" in asked else "6 * 7 = <hole>" if "full form" in asked else "Multiply."
        >>> right = mg.FunctionVerifier(lambda s: float(s.text == "6 * 7 = 42"), name="right")
        >>> DraftSketchFill(mg.FunctionGenerator(write, name="writer"), right).solve("6 times 7?").text
        '6 * 7 = 42'
    """

    generator: Generator = field(kw_only=False)
    verifier: Verifier = field(kw_only=False)
    filler: Generator | None = None
    tries: Count = 4
    accept: Share = 1.0
    hole: Filled = "<hole>"
    draft: str = DRAFT
    sketch: str = SKETCH
    fill: str = FILL
    chat: bool = False

    def __post_init__(self) -> None:
        self._draft = Template(self.draft).expecting("prompt", name="draft")
        self._sketch = Template(self.sketch).expecting("draft", optional=("prompt", "hole"), name="sketch")
        self._filling = Template(self.fill).expecting(
            "sketch", optional=("prompt", "hole", "number"), name="fill"
        )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        values = {"prompt": in_words(prefix.prompt) + prefix.text, "hole": self.hole}
        drafting = scope.child("draft")
        values["draft"] = (await self._ask(self.generator, self._draft, values, prefix, drafting)).text
        try:
            return await self._whole(values, prefix, scope)
        except PromptError:  # longer than the context, by what was drafted and sketched
            return scope.best_offer() or prefix

    async def _whole(self, values: dict[str, str], prefix: Sequence, scope: Scope) -> Sequence:
        """The best of what the sketch is filled to; PromptError where it cannot be."""
        sketching = scope.child("sketch")
        sketch = await self._ask(self.generator, self._sketch, values, prefix, sketching)
        values["sketch"] = sketch.text
        parts = values["sketch"].split(self.hole)
        places = [(i, scope.child(f"fill/{i}")) for i in range(len(parts) - 1)]
        checking = scope.child("check")
        # Whatever fills a sketch that was cut, the whole is not accepted.
        for attempt in range(self.tries if places and sketch.finish in ("eos", "stop") else 1):
            filling = await scope.batch(places, partial(self._fill, attempt, values, prefix), whole=True)
            fills = filling.whole()
            pairs = zip(fills, parts[1:], strict=True)
            text = parts[0] + "".join(fill.text.strip() + part for fill, part in pairs)
            ended = all(piece.finish in ("eos", "stop") for piece in (sketch, *fills))
            whole = prefix.extend(text, finish="eos" if ended else "length")
            scope.offer(whole)
            (score,) = await self.verifier.score([whole], scope=checking)
            scope.offers[-1:] = []
            offer(Candidate(whole.with_score(self.verifier.name, score), score=score), scope)
            if ended and score.value is not None and score.value >= self.accept:
                break
        return scope.best_offer() or prefix

    async def _fill(
        self, attempt: int, values: dict[str, str], prefix: Sequence, place: tuple[int, Scope]
    ) -> Sequence:
        number, scope = place
        numbered = {**values, "number": str(number + 1)}
        filler = self.filler or self.generator
        return await self._ask(filler, self._filling, numbered, prefix, scope, attempt)

    async def _ask(
        self,
        generator: Generator,
        template: Template,
        values: Mapping[str, str],
        prefix: Sequence,
        scope: Scope,
        start: int = 0,
    ) -> Sequence:
        said = template.fill(values)
        return await reply_to(prefix, said, generator=generator, scope=scope, chat=self.chat, start=start)
