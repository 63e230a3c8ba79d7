"""The laws of Evaluate requests: what is read of given ids, and that it is what samples are drawn from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Engine, EvaluateRequest
from metagen.testing.asking import EngineTrial, seeds

#: Draws of each first token, and the rate of false alarms of the law about them.
DRAWS, FALSE_ALARMS = 300, 1e-6


class EvaluationLaws(EngineTrial):
    """What every Engine with a language model promises of the log-probabilities that it reads."""

    def test_samples_have_the_log_probabilities_that_are_read_of_them(self, engine: Engine) -> None:
        self.need("evaluate", "logprobs")
        params: dict[str, Any] = {"temperature": 0.5, "top_k": 5, "logprobs": True}
        for answer in self.ask(engine, *(self.request(3, i, **params) for i in range(len(self.prompts)))):
            head = answer.prefix_ids or ()
            for sample in answer.samples:
                ids, each = sample.ids or (), sample.token_logprobs or ()
                positions = range(len(head) - 1, len(head) + len(ids) - 1)
                following = EvaluateRequest((*head, *ids), tuple(positions))
                labelled = [
                    EvaluateRequest((*head, *ids[:i]), (at,), (ids[i],)) for i, at in enumerate(positions)
                ]
                (whole,), by_label = self.evaluate(engine, following), self.evaluate(engine, *labelled)
                assert [v for (v,) in whole.values] == pytest.approx(each[: len(ids)], abs=self.tolerance)
                found = [v for one in by_label for (v,) in one.values]
                assert found == pytest.approx(each[: len(ids)], abs=self.tolerance)

    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_samples_have_the_distribution_that_is_read(self, engine: Engine, temperature: float) -> None:
        """First tokens: chi-square, among those that were met in other draws."""
        self.need("evaluate")
        statistic, freedom = 0.0, 0
        for i in range(len(self.prompts)):
            met = {ids[0] for ids in self._first(engine, i, 0, 1.0)}
            head = engine.render(self.prefixes[i]) or ()
            labels = tuple(sorted(met))
            (read,) = self.evaluate(engine, EvaluateRequest(head, (len(head) - 1,), labels))
            p = np.exp(np.array(read.values[0]) / temperature)
            drawn = Counter(ids[0] for ids in self._first(engine, i, DRAWS, temperature))
            counts = np.array([drawn[label] for label in labels], np.float64)
            expected = counts.sum() * p / p.sum()
            often = expected >= 5
            if often.sum() > 1:
                seen, want = counts[often], expected[often]
                want *= seen.sum() / want.sum()
                statistic += float(((seen - want) ** 2 / want).sum())
                freedom += len(seen) - 1
        assert freedom, "give prompts after which several tokens may come"
        assert stats.chi2.sf(statistic, freedom) > FALSE_ALARMS

    @pytest.mark.parametrize("top_p", [0.3, 0.7])
    def test_what_top_p_leaves_is_the_smallest_set_of_its_mass(self, engine: Engine, top_p: float) -> None:
        """Without its least probable token, the set has less than `top_p`."""
        self.need("evaluate")
        for i in range(len(self.prompts)):
            met = {ids[0] for ids in self._first(engine, i, 0, 1.0, top_p=top_p)}
            head = engine.render(self.prefixes[i]) or ()
            if met:
                (read,) = self.evaluate(engine, EvaluateRequest(head, (len(head) - 1,), tuple(sorted(met))))
                p = np.exp(np.array(read.values[0]))
                assert p.sum() - p.min() < top_p + self.tolerance

    def _first(
        self, engine: Engine, number: int, first: int, temperature: float, **params: Any
    ) -> list[tuple[int, ...]]:
        """The ids of first tokens that do not end the text."""
        request = self.request(seeds(DRAWS, first), number, most=1, temperature=temperature, **params)
        return [sample.ids for sample in self.draw(engine, request) if sample.ids]

    def test_what_is_greedy_is_the_most_probable(self, engine: Engine) -> None:
        self.need("evaluate")
        for i, sample in enumerate(self.greedy(engine)):
            if not sample.ids:
                continue
            head = engine.render(self.prefixes[i]) or ()
            labels = (sample.ids[0], *(ids[0] for ids in self._first(engine, i, 0, 1.0)))
            (read,) = self.evaluate(engine, EvaluateRequest(head, (len(head) - 1,), labels))
            assert read.values[0][0] >= max(read.values[0]) - self.tolerance

    def test_confidences_are_those_of_the_best_two(self, engine: Engine) -> None:
        """At each place C ≤ −½ (log p_a + log p_b) for any two tokens, and at least ln 2."""
        self.need("evaluate")
        if "top_logprobs" not in engine.supports:
            pytest.skip("the engine keeps no confidences")
        (answer,) = self.ask(engine, self.request(3, top_logprobs=2))
        head = answer.prefix_ids or ()
        labels = tuple(sorted({i for s in answer.samples for i in s.ids or ()}))
        for sample in answer.samples:
            ids = (*head, *(sample.ids or ()))
            positions = tuple(range(len(head) - 1, len(ids)))[: sample.generated]
            (read,) = self.evaluate(engine, EvaluateRequest(ids, positions, labels))
            for row, confidence in zip(read.values, sample.token_confidences or (), strict=True):
                best = np.sort(np.maximum(row, -100.0))[-2:]
                assert np.log(2) - self.tolerance <= confidence <= -best.mean() + self.tolerance

    def test_values_come_by_position_and_label_as_they_were_asked_for(self, engine: Engine) -> None:
        self.need("evaluate")
        ids = self._ids(engine)
        last = len(ids) - 1
        some = self._some_ids(engine)
        (forth,) = self.evaluate(engine, EvaluateRequest(ids, (last - 2, last - 1, last), some))
        (back,) = self.evaluate(engine, EvaluateRequest(ids, (last, last - 1, last - 2), some[::-1]))
        (twice,) = self.evaluate(engine, EvaluateRequest(ids, (last, last), (some[0], some[0])))
        want = [tuple(row[::-1]) for row in forth.values[::-1]]
        assert [list(row) for row in back.values] == [
            pytest.approx(list(row), abs=self.tolerance) for row in want
        ]
        (same,) = {len(row) for row in twice.values}
        assert (len(twice.values), same) == (2, 2)
        for value in (value for row in twice.values for value in row):
            assert value == pytest.approx(forth.values[2][0], abs=self.tolerance)
        (following,) = self.evaluate(engine, EvaluateRequest(ids, (last - 2, last - 1)))
        assert [len(row) for row in following.values] == [1, 1]
        (labelled,) = self.evaluate(engine, EvaluateRequest(ids, (last - 2,), (ids[last - 1],)))
        assert following.values[0] == pytest.approx(labelled.values[0], abs=self.tolerance)

    def test_several_inputs_are_answered_as_each_alone(self, engine: Engine) -> None:
        self.need("evaluate")
        assert self.evaluate(engine) == []
        heads = [engine.render(prefix) or () for prefix in self.prefixes]
        labels = self._some_ids(engine)
        requests = [EvaluateRequest(ids, (len(ids) - 1,), labels) for ids in heads]
        together = self.evaluate(engine, *requests)
        for request, found in zip(requests, together, strict=True):
            (alone,) = self.evaluate(engine, request)
            assert found.values[0] == pytest.approx(alone.values[0], abs=self.tolerance)
            if "cache" in self.without:
                assert (found.prefilled, found.cached) == (None, None)
            else:
                assert found.prefilled is not None and found.cached is not None
                assert found.prefilled + found.cached == len(request.ids)

    def test_what_cannot_be_read_is_refused(self, engine: Engine) -> None:
        ids = self._ids(engine) if "ids" not in self.without else (1, 2, 3)
        if "evaluate" in self.without:
            with pytest.raises(UnsupportedError):
                self.evaluate(engine, EvaluateRequest(ids, (0,)))
            return
        last = len(ids) - 1
        for positions, labels, outputs, error in (
            ((last,), None, False, InputError),
            ((last + 1,), (ids[0],), False, InputError),
            ((-1,), (ids[0],), False, InputError),
            ((), (ids[0],), False, InputError),
            ((0,), (), False, InputError),
            ((0,), (10**9,), False, InputError),
            ((0,), None, True, UnsupportedError),
        ):
            with pytest.raises(error):
                self.evaluate(engine, EvaluateRequest(ids, positions, labels, outputs))
        with pytest.raises(InputError):
            self.evaluate(engine, EvaluateRequest((10**9, *ids), (0,)))

    def _some_ids(self, engine: Engine) -> tuple[int, ...]:
        """Some ids that the model does write."""
        return tuple(sorted({i for sample in self.greedy(engine) for i in sample.ids or ()}))[:5]

    def _ids(self, engine: Engine) -> tuple[int, ...]:
        """Of the first prompt and its greedy completion."""
        (answer,) = self.ask(engine, self.request(1, temperature=0.0))
        return (*(answer.prefix_ids or ()), *(answer.samples[0].ids or ()))
