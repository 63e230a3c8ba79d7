"""The laws of Generate requests: what is drawn, how it ends, and what it is said to have cost."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from metagen.errors import UnsupportedError
from metagen.generators.decoding.adapters import XTC, Dry, Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import Engine, Generated, Sample, SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.sequence import MOST_CONFIDENT, Message, Prompt, Sequence, Step, TokenIds, Tokens, Until
from metagen.testing.asking import EngineTrial, inside, seeds

#: A delimiter that no model writes.
NEVER = "\x00law\x00"


#: A value that is on, of every adapter that an engine may have.
SOME: dict[str, Any] = {
    "logit_bias": {0: -1.0}, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.5,
    "sequence_bias": {(0, 1): -1.0}, "dry": Dry(breakers=()), "min_tokens_to_keep": 2, "top_n_sigma": 2.0, "xtc": XTC(),
    "no_repeat_ngram": 3, "banned": ((0,),), "min_tokens": 2, "top_h": 0.9, "min_p": 0.05,
    "typical_p": 0.9, "epsilon_cutoff": 1e-3, "eta_cutoff": 1e-3, "mirostat": Mirostat(),
}  # fmt: skip


class GenerationLaws(EngineTrial):
    """What every Engine promises of the samples that it draws."""

    # -- which samples ---------------------------------------------------------------------------

    def test_each_seed_has_its_own_sample_in_the_order_of_seeds(self, engine: Engine) -> None:
        (answer,) = self.ask(engine, self.request(8))
        assert len(answer.samples) == 8
        assert len({s.text for s in answer.samples}) > 1, "other seeds, other samples"
        self.need("seeds")
        a, b, *_ = seeds(8)
        mixed = self.draw(engine, self.request(seeds(8)[::-1]), self.request((b, a, b)))
        self.same(mixed, [*answer.samples[::-1], answer.samples[1], answer.samples[0], answer.samples[1]])

    def test_the_same_request_gives_the_same_samples(self, engine: Engine) -> None:
        self.need("seeds")
        first, again = self.draw(engine, self.request(8)), self.draw(engine, self.request(8))
        self.same(again, first)

    def test_more_seeds_begin_with_the_samples_of_fewer(self, engine: Engine) -> None:
        self.need("seeds")
        many = self.draw(engine, self.request(8))
        fewer = self.draw(engine, self.request(4))
        rest = self.draw(engine, self.request(seeds(4, first=4)))
        self.same(fewer + rest, many)

    def test_a_sample_is_the_same_whatever_else_is_in_the_batch(self, engine: Engine) -> None:
        self.need("seeds")
        wanted = [
            self.request(seeds(3, first=7 * i), i % len(self.prompts), temperature=0.5 + 0.25 * (i % 4))
            for i in range(12)
        ]
        alone = [sample for request in wanted for sample in self.draw(engine, request)]
        others = [self.request(2, i, top_k=3) for i in range(len(self.prompts))]
        crowd = self.draw(engine, *others, *wanted)[2 * len(others) :]
        self.same(crowd, alone)

    def test_temperature_0_is_greedy_whatever_the_seed(self, engine: Engine) -> None:
        greedy = self.greedy(engine)
        numbers = range(len(self.prompts))
        each: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}]
        for params in each:
            drawn = self.draw(engine, *(self.request(seeds(2, 9), i, **params) for i in numbers))
            self.same(drawn, [sample for sample in greedy for _ in range(2)])

    def test_top_k_and_temperature_narrow_what_is_drawn(self, engine: Engine) -> None:
        def firsts(**params: Any) -> list[Counter[object]]:
            """How often each first token came, by prompt."""
            numbers = range(len(self.prompts))
            answers = self.ask(engine, *(self.request(32, i, most=1, **params) for i in numbers))
            return [Counter((s.ids or s.text, s.finish) for s in one.samples) for one in answers]

        others = sum(count for met in firsts(top_k=2) for _, count in met.most_common()[2:])
        assert others <= math.ceil(self.flips * 32 * len(self.prompts)), "top_k=2 leaves two tokens"

        def shares(temperature: float) -> float:
            met = firsts(temperature=temperature)
            return sum(max(one.values()) / 32 for one in met) / len(met)

        if (warm := shares(1.0)) < 0.7:
            assert shares(0.01) > warm + 0.15, "at a low temperature the most probable token comes more often"

    # -- how they end ----------------------------------------------------------------------------

    def test_a_sample_ends_by_itself_or_by_its_limit(self, engine: Engine) -> None:
        numbers = range(len(self.prompts))
        drawn = self.draw(engine, *(self.request(8, i) for i in numbers))
        assert any(s.finish == "eos" for s in drawn), "give prompts whose samples end within `most` tokens"
        drawn += (limited := self.draw(engine, *(self.request(8, i, most=2) for i in numbers)))
        assert any(s.finish == "length" for s in limited)
        for sample in drawn:
            assert sample.finish in ("eos", "length")
            assert (sample.cut, sample.step_end) == (False, None)
            if "counts" not in self.without:
                most = 2 if any(sample is one for one in limited) else self.most
                assert sample.generated is not None and 1 <= sample.generated <= most
                assert sample.finish == "eos" or sample.generated == most
            if "counts" not in self.without and "ids" not in self.without:
                assert sample.ids is not None
                assert sample.generated == len(sample.ids) + (sample.finish == "eos"), "the end token counts"

    def test_end_tokens_may_be_ignored(self, engine: Engine) -> None:
        self.need("ignore_eos", "counts")
        drawn = self.draw(engine, self.request(8, most=20, ignore_eos=True))
        assert {(s.generated, s.finish) for s in drawn} == {(20, "length")}

    @pytest.mark.parametrize("length", [1, 2])
    def test_a_stop_text_ends_the_text_and_is_not_in_it(self, engine: Engine, length: int) -> None:
        greedy = self.greedy(engine)
        found = inside(greedy, length)
        cut = self.draw(engine, *(self.request(1, i, temperature=0.0, stop=(s,)) for i, s in found))
        wanted = [(greedy[i].text.partition(stop)[0], "stop") for i, stop in found]
        self.agree([(sample.text, sample.finish) for sample in cut], wanted)
        for i, stop in found:
            for sample in self.draw(engine, self.request(8, i, stop=(stop, NEVER))):
                assert stop not in sample.text
                if sample.ids is not None and sample.generated is not None and sample.finish == "stop":
                    assert len(sample.ids) < sample.generated, "ids are those whose text is kept whole"
                    assert sample.text.startswith(self.decode(engine, sample.ids))

    def test_a_stop_text_may_begin_in_the_completion_that_is_gone_on_with(self, engine: Engine) -> None:
        self.need("begun")
        found = inside(self.greedy(engine), 2)
        halves = [self.request(1, i, temperature=0.0, stop=(stop,)) for i, stop in found]
        begun = []
        for (i, stop), cut, half in zip(found, self.draw(engine, *halves), halves, strict=True):
            # Up to the first half of the stop text, which is where the model stood when it wrote the other one.
            start = self.prefixes[i].extend(cut.text + stop[0])
            begun.append(replace(half, prefix=start))
        drawn = zip(begun, self.draw(engine, *begun), strict=True)
        held = [request.params.stop[0] in request.prefix.text + sample.text for request, sample in drawn]
        self.agree(held, [False] * len(held))

    def test_a_stop_token_ends_the_text_and_is_not_in_it(self, engine: Engine) -> None:
        self.need("ids", "stop_token_ids")
        greedy = self.greedy(engine)
        ids = [sample.ids or () for sample in greedy]
        picked = [(i, own[len(own) // 2]) for i, own in enumerate(ids) if len(own) > 1]
        assert picked, "give prompts whose greedy completions have several tokens"
        cut = self.draw(
            engine, *(self.request(1, i, temperature=0.0, stop_token_ids=(t,)) for i, t in picked)
        )
        kept = [ids[i][: ids[i].index(token)] for i, token in picked]
        self.agree([(s.ids, s.finish) for s in cut], [(own, "stop") for own in kept])
        if "counts" not in self.without:
            assert all(s.generated == len(s.ids or ()) + (s.finish in ("stop", "eos")) for s in cut)

    def test_a_text_is_the_decoding_of_its_ids(self, engine: Engine) -> None:
        self.need("ids")
        drawn = self.draw(engine, *(self.request(8, i) for i in range(len(self.prompts))))
        assert [self.decode(engine, s.ids or ()) for s in drawn] == [s.text for s in drawn]

    # -- steps and blocks ------------------------------------------------------------------------

    def test_a_step_ends_behind_its_delimiter(self, engine: Engine) -> None:
        self.need("until")
        greedy = self.greedy(engine)
        found = inside(greedy)
        steps = self.draw(
            engine, *(self.request(1, i, temperature=0.0, until=Step(mark)) for i, mark in found)
        )
        ends = [greedy[i].text.index(mark) + len(mark) for i, mark in found]
        self.agree([s.step_end for s in steps], ends)
        self.agree([greedy[i].text.startswith(s.text) for (i, _), s in zip(found, steps, strict=True)],
                   [True] * len(steps))  # fmt: skip
        for i, mark in found:
            for sample in self.draw(engine, self.request(8, i, until=Step(mark))):
                assert not sample.cut
                if sample.step_end is None:
                    assert sample.finish is not None and mark not in sample.text
                else:
                    assert sample.step_end == sample.text.index(mark) + len(mark)
                    assert sample.finish is None or sample.finish == "length"

    def test_a_step_cut_by_its_length_can_be_gone_on_with(self, engine: Engine) -> None:
        self.need("until", "counts")
        for sample in self.draw(engine, self.request(8, until=Step(NEVER, max_tokens=2))):
            if sample.finish is None:
                assert sample.cut and sample.step_end is None and sample.generated == 2
            else:
                assert sample.finish == "eos" and not sample.cut
        for sample in self.draw(engine, self.request(8, most=2, until=Step(NEVER, max_tokens=2))):
            assert sample.finish in ("eos", "length"), "nothing is left of the request's own limit"

    def test_a_block_has_as_many_tokens_as_were_asked_for(self, engine: Engine) -> None:
        self.need("until", "counts")
        blocks = self.draw(engine, self.request(8, until=Tokens(3)))
        for sample in blocks:
            assert not sample.cut and sample.step_end is None and sample.generated is not None
            assert sample.generated == 3 if sample.finish is None else sample.generated <= 3
            assert sample.finish in (None, "eos")
        for sample in self.draw(engine, self.request(8, most=3, until=Tokens(3))):
            assert sample.finish in ("eos", "length"), "nothing is left of the request's own limit"
        self.need("seeds")
        whole = self.draw(engine, self.request(8))
        begun = [w.text.startswith(b.text) for b, w in zip(blocks, whole, strict=True)]
        self.agree(begun, [True] * 8)

    @pytest.mark.parametrize("by", ["blocks", "steps"])
    def test_going_on_comes_to_the_same_end_as_one_go(self, engine: Engine, by: str) -> None:
        self.need("until", "counts", "begun")
        greedy = self.greedy(engine)
        untils: dict[int, Until] = dict.fromkeys(range(len(greedy)), Tokens(3))
        if by == "steps":
            untils = {i: Step(mark) for i, mark in inside(greedy)}
        ends = {i: self._grow(engine, i, until) for i, until in untils.items()}
        self.agree(
            [(end.text, end.finish, end.tokens and end.tokens.ids) for end in ends.values()],
            [(greedy[i].text, greedy[i].finish, greedy[i].ids) for i in ends],
        )

    def _grow(self, engine: Engine, number: int, until: Until) -> Sequence:
        """The greedy completion of a prompt, part by part."""
        prefix, left = self.prefixes[number], self.most
        while prefix.finish is None:
            assert left > 0, "a sample that has had all its tokens has finished"
            (answer,) = self.ask(engine, self.request(1, prefix, most=left, until=until, temperature=0.0))
            (part,) = answer.samples
            if answer.prefix_ids is not None:
                assert answer.prefix_ids == engine.render(prefix)
            left -= part.generated or 0
            longer = self.grow(engine, prefix, part)
            if part.ids is not None and part.finish is None:
                assert engine.render(longer) == (*(engine.render(prefix) or ()), *part.ids)
            prefix = longer if part.finish is None else _finish(longer, part)
        return prefix

    def test_messages_are_read_as_turns_or_as_plain_text(self, engine: Engine) -> None:
        """As `auto` says, and as the engine says of itself; plain text is what a text prompt would be."""
        self.need("ids")
        turns = [Message("system", "Count."), Message("user", "One."), Message("assistant", "Two")]
        auto, plain = (Prompt.of(turns, form=form) for form in ("auto", "text"))
        text = Sequence.of(Prompt.of(plain.plain(template=True) or "", form="text"))
        assert engine.render(Sequence.of(plain)) == engine.render(text)
        chat = getattr(
            engine, "chat", None
        )  # engines of others may have been written before there was a form
        same = Sequence.of(Prompt.of(turns)) if chat is not None else text
        assert engine.render(Sequence.of(auto)) == engine.render(same)

    def test_ids_are_used_as_they_are_and_those_of_another_tokenizer_not_at_all(self, engine: Engine) -> None:
        self.need("ids", "begun")
        prefix = self.prefixes[0]
        head = engine.render(prefix) or ()
        for sample in self.draw(engine, self.request(16)):
            own = self.grow(engine, prefix, sample)
            assert engine.render(own) == (*head, *(sample.ids or ()))
            bare = prefix.extend(sample.text)
            foreign = prefix.extend(sample.text, tokens=TokenIds((0, 0, 0), "another tokenizer"))
            assert engine.render(foreign) == engine.render(bare)
            assert isinstance(engine.encode(sample.text), tuple)

    # -- numbers ---------------------------------------------------------------------------------

    def test_log_probabilities_add_up_and_are_those_of_the_raw_model(self, engine: Engine) -> None:
        self.need("logprobs")
        params: dict[str, Any] = {"temperature": 0.5, "top_k": 5, "top_p": 0.9}
        numbers = range(len(self.prompts))
        answers = self.ask(engine, *(self.request(4, i, logprobs=True, **params) for i in numbers))
        for sample in (sample for answer in answers for sample in answer.samples):
            each = sample.token_logprobs
            assert each is not None and sample.logprob is not None, (
                "logprobs=True asks for logprob and token_logprobs; give both, or add 'logprobs' to `without`"
            )
            assert all(value <= 0 for value in each)
            assert sample.logprob == pytest.approx(math.fsum(each), abs=self.tolerance)
            assert sample.generated is None or len(each) == sample.generated, "the end token has one as well"
        (plain,) = self.draw(engine, self.request(1, **params))
        assert plain.token_logprobs is None, "they are kept when asked for"

    def test_confidences_change_nothing_that_is_drawn(self, engine: Engine) -> None:
        if "top_logprobs" not in engine.supports:
            with pytest.raises(UnsupportedError):
                EngineGenerator(engine, SamplingParams(top_logprobs=2))
            return
        kept = self.draw(engine, self.request(8, top_logprobs=2))
        for sample in kept:
            each = sample.token_confidences
            assert each is not None and len(each) == sample.generated
            # Two probabilities that add up to 1 at most have a geometric mean of ½ at most.
            assert all(math.log(2) - self.tolerance <= c <= MOST_CONFIDENT for c in each)
        self.need("seeds")
        self.same(kept, self.draw(engine, self.request(8)))

    def test_a_grammar_holds_what_is_written(self, engine: Engine) -> None:
        written = [s.text for s in self.draw(engine, self.request(16)) if s.finish == "eos" and s.text]
        grammar = Grammar.choice(sorted(set(written))[:2] or ["no"])
        if "grammar" not in engine.supports:
            with pytest.raises(UnsupportedError):
                EngineGenerator(engine, SamplingParams(grammar=grammar))
            return
        options = sorted(set(written))[:2]
        assert options, "give a first prompt whose samples end within `most` tokens"
        for sample in self.draw(engine, self.request(8, grammar=grammar)):
            assert sample.finish == "eos" and sample.text in options

    @pytest.mark.parametrize("name", sorted(SOME))
    def test_an_adapter_is_had_or_refused_by_name(self, engine: Engine, name: str) -> None:
        params = {name: SOME[name]}
        if name not in engine.supports:
            with pytest.raises(UnsupportedError, match=f"{name}="):
                EngineGenerator(engine, SamplingParams(**params))
            return
        for sample in self.draw(engine, self.request(4, **params)):
            assert name != "min_tokens" or sample.ids is None or len(sample.ids) >= SOME[name]
            assert name != "banned" or sample.ids is None or 0 not in sample.ids

    # -- accounts --------------------------------------------------------------------------------

    def test_what_a_request_read_is_its_prefix_once_for_each_sample(self, engine: Engine) -> None:
        answers = self.ask(engine, *(self.request(3, i) for i in range(len(self.prompts))))
        for answer, prefix in zip(answers, self.prefixes, strict=True):
            self._account(answer, len(answer.samples))
            if "ids" not in self.without:
                assert answer.prefix_ids == engine.render(prefix)
                assert answer.prefix_tokens in (None, len(answer.prefix_ids or ()))

    def _account(self, answer: Generated, n: int) -> None:
        """Nothing is 0 because it is unknown."""
        read = answer.prefilled, answer.cached
        if "counts" in self.without:
            assert answer.prefix_tokens is None and all(s.generated is None for s in answer.samples)
        else:
            assert answer.prefix_tokens, (
                "prefix_tokens is unknown or 0; count it, or add 'counts' to `without`"
            )
        if "cache" in self.without or (n > 1 and "reads" in self.without):
            assert read == (None, None), f"prefilled, cached = {read}; expected None by `without`"
            return
        assert answer.prefilled is not None and answer.cached is not None and answer.prefix_tokens, (
            f"prefilled, cached = {read}; count them, or add 'cache' to `without`"
        )
        assert min(answer.prefilled, answer.cached) >= 0
        assert answer.prefilled + answer.cached == answer.prefix_tokens * n

    def test_what_was_read_once_is_read_from_the_cache(self, engine: Engine) -> None:
        self.need("cache", "reads")
        self.ask(engine, self.request(1))
        (again,) = self.ask(engine, self.request(3))
        assert again.prefix_tokens and again.cached is not None
        # The last token of a prefix may have to be computed, to draw what follows.
        whole = (again.prefix_tokens - 1) // self.block * self.block
        assert again.cached >= 3 * whole

    def test_the_engines_own_counters_add_up(self, engine: Engine) -> None:
        self.draw(engine, self.request(1))
        before = replace(engine.stats)
        answers = self.ask(engine, *(self.request(3, i) for i in range(len(self.prompts))))
        samples = [sample for answer in answers for sample in answer.samples]
        counted: dict[str, int] = {"requests": len(answers), "samples": len(samples)}
        if "counts" not in self.without:
            run = [s.generated if s.computed is None else s.computed for s in samples]
            assert all(0 <= (c or 0) <= (s.generated or 0) for c, s in zip(run, samples, strict=True))
            counted["generated"] = sum(c or 0 for c in run)
        if not self.without & {"cache", "reads"}:
            counted["prefilled"] = sum(answer.prefilled or 0 for answer in answers)
            counted["cached"] = sum(answer.cached or 0 for answer in answers)
        assert {name: getattr(engine.stats, name) - getattr(before, name) for name in counted} == counted


def _finish(sequence: Sequence, sample: Sample) -> Sequence:
    return Sequence(sequence.prompt, sequence.text, sequence.tokens, finish=sample.finish)
