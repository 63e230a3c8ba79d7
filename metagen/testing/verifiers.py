"""The laws of verifiers, as tests: subclass `VerifierLaws` in a test module and give `make`."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext

from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing.generators import CountingJournal, run
from metagen.verifiers.base import Verifier


class VerifierLaws:
    """What every Verifier promises.

    prompt, texts: a prompt, and at least three different completions that the verifier scores differently. A verifier
    that reads data of the problem needs a Prompt with that data in `public`.

    Examples:
        >>> import metagen as mg
        >>> from metagen.testing import VerifierLaws
        >>> class TestMine(VerifierLaws):  # pytest runs all laws
        ...     def make(self):
        ...         return mg.FunctionVerifier(lambda sequence: 0.5, name="mine")
        >>> TestMine().test_one_score_each_in_the_unit_interval_or_a_verdict()
    """

    prompt: Prompt = Prompt("law", text="A prompt.")
    texts: tuple[str, ...] = ("one", "two", "three")

    @abstractmethod
    def make(self) -> AbstractContextManager[Verifier] | Verifier:
        """The verifier under test; a context manager if it needs one."""

    def sequences(self) -> list[Sequence]:
        return [Sequence.of(self.prompt).extend(text, finish="eos") for text in self.texts]

    def _open(self) -> AbstractContextManager[Verifier]:
        made = self.make()
        return nullcontext(made) if isinstance(made, Verifier) else made

    def _scores(
        self, verifier: Verifier, sequences: list[Sequence], journal: CountingJournal | None = None
    ) -> list[Score]:
        async def score(scope: Scope) -> list[Score]:
            return await verifier.score(sequences, scope=scope.child("score"))

        return run(score, journal=journal)[0]

    def test_one_score_each_in_the_unit_interval_or_a_verdict(self) -> None:
        with self._open() as verifier:
            scores = self._scores(verifier, self.sequences())
        assert len(scores) == len(self.texts)
        assert all(s.verdict is not None or (s.value is not None and 0.0 <= s.value <= 1.0) for s in scores)

    def test_nothing_to_score_is_no_scores(self) -> None:
        with self._open() as verifier:
            assert self._scores(verifier, []) == []

    def test_order_and_repetition_change_nothing(self) -> None:
        sequences = self.sequences()
        with self._open() as verifier:
            forward = self._scores(verifier, sequences)
            backward = self._scores(verifier, sequences[::-1])
            doubled = self._scores(verifier, sequences + sequences)
        for a, b in zip(forward, backward[::-1], strict=True):
            assert _close(a, b)
        for a, b in zip(doubled[: len(forward)], doubled[len(forward) :], strict=True):
            assert a == b

    def test_a_score_alone_is_the_score_among_others(self) -> None:
        with self._open() as verifier:
            if verifier.relative:
                return
            among = self._scores(verifier, self.sequences())
            for sequence, score in zip(self.sequences(), among, strict=True):
                (alone,) = self._scores(verifier, [sequence])
                assert _close(alone, score), (
                    f"{sequence.text!r} scores {score.value} among others and {alone.value} alone; let the property "
                    "`relative` be True where that is meant"
                )

    def test_a_recorded_score_is_never_paid_for_again(self) -> None:
        journal = CountingJournal()
        with self._open() as verifier:
            first = self._scores(verifier, self.sequences(), journal)
            paid = journal.recorded
            assert self._scores(verifier, self.sequences(), journal) == first
        assert journal.recorded == paid

    def test_oracles_mark_their_scores(self) -> None:
        with self._open() as verifier:
            assert all(s.oracle == verifier.oracle for s in self._scores(verifier, self.sequences()))


def _close(a: Score, b: Score) -> bool:
    """Equal up to rounding, which may depend on what shares a batch."""
    if a.value is None or b.value is None:
        return a.verdict == b.verdict
    return abs(a.value - b.value) < 1e-4
