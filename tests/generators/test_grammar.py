"""Grammars: exact on a small table, equal in what they allow, and errors that name the place."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from metagen.errors import InputError, UnsupportedError
from metagen.generators.constraint import Constraints
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.grammar import Grammar
from metagen.generators.primitive import EngineGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.testing import run

TOKENS = ("a", "b", "ab", "1", "<end>")


def coin(tokens: tuple[str, ...] = TOKENS) -> EnumerableEngine:
    return EnumerableEngine(tokens, lambda prompt, done: [0.4, 0.2, 0.1, 0.1, 0.2], name="coin")


def drawn(engine: EnumerableEngine, prefix: Sequence, n: int, **params: Any) -> list[Sequence]:
    async def ask(scope: Scope) -> list[Sequence]:
        return await engine.generator(**params).generate(prefix, n=n, scope=scope)

    return run(ask)[0]


def test_masking_is_local_and_exact() -> None:
    """a(a|b): the first token is a or ab, and what follows each is renormalised by itself."""
    grammar = Grammar.regex("a(a|b)")
    found = coin().sequences("?", SamplingParams(grammar=grammar), max_tokens=8)
    texts: Counter[str] = Counter()
    for tokens, p in found.items():
        assert tokens[-1] == "<end>"
        texts["".join(tokens[:-1])] += p  # type: ignore[assignment]  # a Counter of floats
    # By a, then a or b: .4/.5 each in proportion 2 to 1; by ab at once: .1/.5.
    assert texts["aa"] == pytest.approx(0.8 * 2 / 3) and texts["ab"] == pytest.approx(0.8 / 3 + 0.2)
    # The model given that its text is in the grammar is another distribution.
    free = {"aa": 0.4 * 0.4, "ab": 0.4 * 0.2 + 0.1}
    assert texts["aa"] != pytest.approx(free["aa"] / sum(free.values()), abs=0.05)


def test_samples_follow_that_distribution_and_keep_the_models_log_probabilities() -> None:
    with coin() as engine:
        samples = drawn(engine, Sequence.of("?"), 2000, grammar=Grammar.regex("a(a|b)"), max_tokens=8)
    counts = Counter(s.text for s in samples)
    assert set(counts) == {"aa", "ab"} and abs(counts["aa"] / 2000 - 0.8 * 2 / 3) < 0.04
    assert {s.finish for s in samples} == {"eos"}
    one = next(s for s in samples if s.text == "aa")
    assert one.logprob == pytest.approx(2 * -0.916290731874155 - 1.6094379124341003)  # 0.4, 0.4, 0.2


def test_a_prefix_is_a_part_of_the_text_that_is_held() -> None:
    grammar = Grammar.regex("ab1")
    with coin() as engine:
        begun = Sequence.of("?").extend("ab")
        (sample,) = drawn(engine, begun, 1, grammar=grammar, max_tokens=8)
        assert sample.text == "ab1"
        with pytest.raises(InputError, match="the prefix does not begin a text of the grammar 'ab1'"):
            drawn(engine, Sequence.of("?").extend("b"), 1, grammar=grammar, max_tokens=8)


def test_greedy_and_masks_go_together() -> None:
    with coin() as engine:
        (sample,) = drawn(
            engine, Sequence.of("?"), 1, grammar=Grammar.regex("b+1"), temperature=0.0, max_tokens=4
        )
        assert (sample.text, sample.finish) == ("bbbb", "length")
        (sample,) = drawn(
            engine, Sequence.of("?"), 1, grammar=Grammar.choice(["b1", "1"]), top_k=1, max_tokens=4
        )
        assert sample.text == "b1"


@pytest.mark.parametrize(
    ("grammar", "match"),
    [
        (Grammar.regex("("), r"regex grammar '\(': .*unclosed group"),
        (Grammar.lark("start: foo"), "lark grammar 'start: foo': .*unknown name"),
        (Grammar.json('{"type":'), "json_schema grammar"),
        (Grammar.regex("xyz"), "tokens cannot write what it begins with"),
    ],
)
def test_what_is_no_grammar_or_cannot_be_written_is_refused(grammar: Grammar, match: str) -> None:
    with coin() as engine, pytest.raises(InputError, match=match):
        drawn(engine, Sequence.of("?"), 1, grammar=grammar, max_tokens=4)


def test_what_has_no_probability_is_told() -> None:
    engine = EnumerableEngine(("a", "b", "<end>"), lambda prompt, done: [0.5, 0.0, 0.5], name="no b")
    with engine, pytest.raises(InputError, match="after 'a' the table gives no probability"):
        drawn(engine, Sequence.of("?"), 1, grammar=Grammar.regex("ab"), max_tokens=4)


def test_values_and_combinations_that_say_nothing_are_refused() -> None:
    for wrong in (lambda: Grammar.regex(""), lambda: Grammar.choice([]), lambda: Grammar.choice(["a", ""])):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="kind='bnf'"):
        Grammar("bnf", "x")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(InputError, match="leave ignore_eos off"):
        SamplingParams(grammar=Grammar.regex("a"), ignore_eos=True)
    with pytest.raises(InputError, match=r"grammar='a\+'"):
        SamplingParams(grammar="a+")  # type: ignore[arg-type]  # likewise


def test_an_engine_that_cannot_is_refused_when_the_generator_is_made() -> None:
    engine = coin()
    plain = type("Plain", (EnumerableEngine,), {"supports": frozenset()})(TOKENS, {}, name="plain")
    assert "grammar" in EngineGenerator(engine).supports
    with pytest.raises(UnsupportedError, match="cannot hold completions to a grammar"):
        EngineGenerator(plain, SamplingParams(grammar=Grammar.regex("a")))


def test_a_grammar_is_another_generator_and_its_absence_changes_no_fingerprint() -> None:
    with coin() as engine:
        free, held = engine.generator(), engine.generator(grammar=Grammar.regex("a"))
        assert held.fingerprint != free.fingerprint == held.replace(grammar=None).fingerprint
        assert SamplingParams().fingerprint == (
            "SamplingParams(temperature=1.0, top_k=0, top_p=1.0, max_tokens=256, stop=(), stop_token_ids=(), "
            "ignore_eos=False, logprobs=False)"
        )


def test_digits_are_those_that_people_mean() -> None:
    assert Grammar.regex(r"\d+\\d").source == r"[0-9]+\\d"
    assert re.fullmatch(Grammar.choice(["a.b", "c|d"]).source, "c|d")


def bytes_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(['{"name": "Zoë", "age": 12}', '{"name": "Ann"}'] * 20, trainer)
    return tokenizer


class Person(BaseModel):
    name: str
    age: int


def test_a_vocabulary_of_bytes_writes_json_with_characters_that_are_split() -> None:
    tokenizer = bytes_tokenizer()
    end = tokenizer.token_to_id("<end>")
    size = tokenizer.get_vocab_size()
    held = Constraints.of_json(tokenizer.to_str(), size, eos=[end])
    matcher = held.matcher(Grammar.json(Person))
    text = Person(name="Zoë", age=12).model_dump_json()
    for token in tokenizer.encode(text).ids:
        assert matcher.allowed()[token] and not matcher.allowed()[end]
        assert matcher.consume([token])
    assert matcher.allowed()[end] and matcher.allowed().sum() == 1
    assert not held.matcher(Grammar.json(Person)).consume(tokenizer.encode('{"name": 3').ids)
    with pytest.raises(UnsupportedError, match="needs an end token"):
        Constraints.of_json(tokenizer.to_str(), size, eos=[])


def test_matchers_of_one_grammar_do_not_meet() -> None:
    engine = coin()
    with engine:

        async def both() -> list[list[Sequence]]:
            generators = [
                engine.generator(grammar=Grammar.regex(p), max_tokens=6) for p in ("a1", "b1", "a1")
            ]
            scopes = [Scope.root(str(i)) for i in range(3)]
            return await asyncio.gather(
                *(
                    g.generate(Sequence.of(Prompt("p", text="?")), n=4, scope=s)
                    for g, s in zip(generators, scopes, strict=True)
                )
            )

        texts = [{s.text for s in samples} for samples in asyncio.run(both())]
        assert texts == [{"a1"}, {"b1"}, {"a1"}]
