"""Grammars: exact on a small table, equal in what they allow, and errors that name the place."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from metagen.budget import Budget
from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.closing import AHEAD, Ways
from metagen.generators.decoding.constraint import Constraints
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.sources import resolve
from metagen.generators.primitive import EngineGenerator
from metagen.generators.tokenizer import Tokenizer as Tiny
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import Sample
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
        (Grammar.json('{"type": "whole"}'), "json_schema grammar"),
        (Grammar.regex("xyz"), "tokens cannot write what it begins with"),
        (Grammar.regex("(a|b)x1"), "or no text of it to its end"),
        (Grammar.lark('start: "a" start'), "or no text of it to its end"),
        (Grammar.regex("[a&&b]"), "tokens cannot write"),
        (Grammar.json({"type": "integer", "minimum": 3, "maximum": 2}), "Unsatisfiable schema"),
        (Grammar.regex("a(?=b)"), "look-ahead"),
    ],
)
def test_what_is_no_grammar_or_cannot_be_written_is_refused(grammar: Grammar, match: str) -> None:
    with pytest.raises(InputError, match=match):
        coin().generator(grammar=grammar, max_tokens=4)
    with pytest.raises(InputError, match=match):
        coin().sequences("?", SamplingParams(grammar=grammar, max_tokens=4))


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


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Grammar.choice("yes"), r"options='yes': expected a list of texts, as in .*\(\['yes'\]\)"),
        (lambda: Grammar.choice(3), "options=3: expected a list of texts"),
        (lambda: Grammar.choice([1, 2]), r"options=\[1, 2\]: expected at least one text"),
        (lambda: Grammar.regex(None), "a regex grammar of None: expected its text"),
        (lambda: Grammar.lark(3), "a lark grammar of 3: expected its text"),
        (lambda: Grammar("json_schema", {"type": "integer"}), "a json_schema grammar of {'type'"),
        (lambda: Grammar.json(int), "schema=<class 'int'>: expected a JSON schema as a dictionary"),
        (lambda: Grammar.json(3), "schema=3: expected a JSON schema"),
        (lambda: Grammar.json(None), "schema=None: expected a JSON schema"),
        (lambda: Grammar.json("[1]"), "expected a JSON schema"),
        (lambda: Grammar.json("{"), "schema='{' is no JSON"),
        (lambda: Grammar.json({"enum": {1, 2}}), "cannot be written as JSON"),
        (lambda: Grammar.json({}, compact="yes"), "compact='yes': expected True or False"),
    ],
)
def test_what_holds_no_texts_is_refused_at_once(make: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        make()


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
    assert Grammar.regex(r"\d\d\d-\d\d").source == "[0-9][0-9][0-9]-[0-9][0-9]"
    assert Grammar.regex(r"\\\d\\d\w").source == r"\\[0-9]\\d\w"
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
        assert matcher.allowed_tokens()[token] and not matcher.allowed_tokens()[end]
        assert matcher.consume([token])
    assert matcher.allowed_tokens()[end] and matcher.allowed_tokens().sum() == 1
    assert not held.matcher(Grammar.json(Person)).consume(tokenizer.encode('{"name": 3').ids)
    with pytest.raises(UnsupportedError, match="needs an end token"):
        Constraints.of_json(tokenizer.to_str(), size, eos=[])


def held_to(engine: EnumerableEngine) -> Constraints:
    texts = [token.encode() for token in engine.tokens]
    return Constraints.of_tokens(texts, special=[engine.eos], eos=[engine.eos], encode=engine.encode)


def test_forced_is_what_masks_leave_no_choice_about_and_asking_changes_nothing() -> None:
    """The tokens that the engine need not draw: each the only one allowed, and never the end."""
    held = held_to(coin())
    for canonical in (True, False):
        matcher = held.matcher(Grammar.regex("1(a1a|bb)1", canonical=canonical))
        assert matcher.forced_tokens() == [3] and matcher.consume([3])
        assert matcher.forced_tokens() == [] and matcher.consume([0])
        assert matcher.forced_tokens() == [3, 0, 3] == matcher.forced_tokens()
        stepwise = []
        while (mask := matcher.allowed_tokens()).sum() == 1 and not mask[4]:
            stepwise.append(int(mask.argmax()))
            assert matcher.consume(stepwise[-1:])
        assert stepwise == [3, 0, 3] and matcher.forced_tokens() == []
        assert matcher.allowed_tokens().tolist() == [False] * 4 + [True]


def test_forced_text_is_written_as_the_tokenizer_writes_it_unless_all_spellings_are_allowed() -> None:
    """The tokenizer takes the longest token: "ab" is one. Spelt by any tokens, "ab" is two more."""
    engine = coin()
    canonical = engine.sequences("?", SamplingParams(grammar=Grammar.regex("ab1")))
    assert canonical == {("ab", "1", "<end>"): pytest.approx(1.0)}
    free = engine.sequences("?", SamplingParams(grammar=Grammar.regex("ab1", canonical=False)))
    assert free == {("ab", "1", "<end>"): pytest.approx(0.2), ("a", "b", "1", "<end>"): pytest.approx(0.8)}


def test_tokens_are_accepted_as_far_as_masks_allow_them() -> None:
    matcher = held_to(coin()).matcher(Grammar.regex("a(b|1)*"))
    assert matcher.accepts([0, 1, 3, 4]) == 4
    assert matcher.accepts([0, 1, 0]) == 2 and matcher.accepts([1]) == 0 and matcher.accepts([]) == 0
    copy = matcher.copy()
    assert copy.consume([0, 1]) and matcher.accepts([0, 1]) == 2, "a copy goes its own way"


def test_a_text_that_only_unknown_tokens_spell_is_refused() -> None:
    """The embedded tokenizers write <unk> for what they do not know: that is no text of any grammar."""
    held = Tiny(resolve("tiny-0.1m"), 104).constraints()
    for pattern in ("é", "aé", "(a|b)é"):
        with pytest.raises(InputError, match="cannot write"):
            held.matcher(Grammar.regex(pattern))
    matcher = held.matcher(Grammar.regex("aé?"))
    (only,) = matcher.forced_tokens()
    assert held.texts[only] == b"a" and matcher.consume([only]) and matcher.allowed_tokens().sum() == 1


def test_names_of_special_tokens_are_written_as_text() -> None:
    """No text of a grammar is the token that ends a completion, whatever its name."""
    held = Tiny(resolve("tiny-0.1m"), 104).constraints()
    matcher, ids = held.matcher(Grammar.choice(["</s>!"])), []
    while (forced := matcher.forced_tokens()) and matcher.consume(forced):
        ids += forced
    assert b"".join(held.texts[i] for i in ids) == b"</s>!"


SHORT = [
    Grammar.regex("a(b1)*(1|bb)", close=True),
    Grammar.regex("[ab]{3,6}1", close=True),
    Grammar.regex("(ab|1a){2}b?(1111)?", close=True),
    Grammar.regex("ab(1b)*", close=True, canonical=False),
    Grammar.lark('start: "a" start "b" | "1"', close=True),
]


@pytest.mark.parametrize("grammar", SHORT, ids=lambda grammar: grammar.source)
def test_a_document_that_closes_is_never_cut_and_every_length_that_fits_is_written(grammar: Grammar) -> None:
    """By enumeration: all completions end, within any max_tokens from the shortest on, and none that fits is lost."""
    open_ = replace(grammar, close=False)
    held = held_to(coin())
    texts = {
        ids for ids in writings(held, open_, 9) if ids[-1] == 4
    }  # those of at most 9 tokens, their end included
    shortest = min(map(len, texts))
    for most in range(shortest, 9):
        found = writings(held, grammar, most)
        assert found == {ids for ids in texts if len(ids) <= most}
    with pytest.raises(
        InputError, match=f"the shortest that was found has {shortest}, the end token included"
    ):
        held.matcher(grammar, left=shortest - 1)


def writings(held: Constraints, grammar: Grammar, most: int) -> set[tuple[int, ...]]:
    """All that masks allow, up to the end or to so many tokens."""
    found: set[tuple[int, ...]] = set()
    stack: list[tuple[tuple[int, ...], Any]] = [((), held.matcher(grammar, left=most))]
    while stack:
        ids, here = stack.pop()
        if ids[-1:] == (4,) or len(ids) == most:
            found.add(ids)
            continue
        for token in here.allowed_tokens(most - len(ids)).nonzero()[0].tolist():
            behind = here.copy()
            assert behind.consume([token])
            stack.append(((*ids, token), behind))
    return found


def test_other_spellings_close_what_the_tokenizer_would_write_too_long() -> None:
    """This tokenizer writes characters alone: three and the end do not fit, of which the vocabulary has one token."""
    texts = (b"a", b"b", b"c", b"abc", b"<end>")
    held = Constraints.of_tokens(
        texts, special=[4], eos=[4], encode=lambda text: ["abc".index(x) for x in text]
    )
    assert held.matcher(Grammar.regex("abc")).forced_tokens() == [0, 1, 2]
    tight = held.matcher(Grammar.regex("abc", close=True), left=2)
    assert tight.forced_tokens(2) == [3] and tight.forced_tokens(4) == [0, 1, 2]


class Tree(BaseModel):
    value: int
    children: list[Tree]


JSON = [
    (Grammar.json(Person, close=True), '{"name":"","age":0}'),
    (Grammar.json(Tree, close=True), '{"value":0,"children":[]}'),
    (Grammar.json({"type": "array", "items": {"enum": ["ab", "c"]}, "minItems": 2}, close=True), '["c","c"]'),
]


@pytest.mark.parametrize("name", ["tiny-0.1m", "tiny-bpe"])
@pytest.mark.parametrize(("grammar", "shortest"), JSON, ids=["flat", "recursive", "array"])
def test_json_that_closes_is_valid_at_every_length(name: str, grammar: Grammar, shortest: str) -> None:
    """Random walks over the masks: the wildest of all models."""
    tokenizer = Tiny(resolve(name), 104 if name == "tiny-0.1m" else 404)
    held, rng = tokenizer.constraints(), np.random.default_rng(7)
    (end,) = tokenizer.eos
    least = len(tokenizer.encode(shortest)) + 1
    for most in [least, least + 1, least + 2, least + 7, 64]:
        for _ in range(4):
            matcher, ids = held.matcher(grammar, left=most), []
            while ids[-1:] != [end]:
                assert len(ids) < most
                ids.append(int(rng.choice(np.flatnonzero(matcher.allowed_tokens(most - len(ids))))))
                assert matcher.consume(ids[-1:])
            json.loads(tokenizer.decode(ids[:-1]))


BOOL, INT, STR = {"type": "boolean"}, {"type": "integer"}, {"type": "string"}
LIST, ENUM = {"type": "array", "items": BOOL, "maxItems": 3}, {"enum": ["yy", "x"]}


def record(**properties: Any) -> dict[str, Any]:
    """The schema of objects that have all of these properties, and no others."""
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


STEPS = record(steps={"type": "array", "items": record(op=STR, result=INT)}, answer=INT)


@pytest.mark.parametrize(
    ("schema", "shortest"),
    [
        (record(a=INT, s=ENUM, l=LIST), '{"a":0,"s":"x","l":[]}'),
        (record(a=INT, b=BOOL, t=STR), '{"a":0,"b":true,"t":""}'),
        (record(name=STR, age=INT, email=STR, active=BOOL), '{"name":"","age":0,"email":"","active":true}'),
        (record(b=BOOL, l=LIST, s=ENUM, a=INT), '{"b":true,"l":[],"s":"x","a":0}'),
        (record(**dict.fromkeys("abcdefgh", BOOL)), "{" + ",".join(f'"{k}":true' for k in "abcdefgh") + "}"),
        (record(**dict.fromkeys(("title", "author", "year", "genre", "isbn"), STR)),
         '{"title":"","author":"","year":"","genre":"","isbn":""}'),
    ],
    ids=["enum", "string", "four", "list", "booleans", "strings"],
)  # fmt: skip
def test_the_shortest_document_of_flat_fields_is_found_to_the_character(
    schema: dict[str, Any], shortest: str
) -> None:
    """A character is a token here."""
    held = Tiny(resolve("tiny-0.1m"), 104).constraints()
    for compact in (False, True):
        grammar = Grammar.json(schema, close=True, compact=compact)
        assert held.matcher(grammar, left=len(shortest) + 1).way(len(shortest) + 1) == len(shortest) + 1
        with pytest.raises(InputError, match=f"the shortest that was found has {len(shortest) + 1}"):
            held.matcher(grammar, left=len(shortest))


def test_where_the_search_gives_up_more_tokens_are_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metagen.generators.decoding.closing.EFFORT", 40)
    held = Tiny(resolve("tiny-0.1m"), 104).constraints()
    with pytest.raises(
        InputError, match=r"no end was found .*; leave close off, or set compact white space"
    ) as error:
        held.matcher(Grammar.json(STEPS, close=True), left=200)
    assert "raise max_tokens" not in str(error.value)
    with pytest.raises(InputError, match="leave close off, or simplify it"):
        held.matcher(Grammar.json(STEPS, close=True, compact=True), left=200)
    assert held.matcher(Grammar.json(STEPS), left=200).allowed_tokens(200).any()


@pytest.mark.parametrize("name", ["tiny-0.1m", "tiny-bpe"])
def test_a_document_of_nested_records_closes_however_far_the_limit_is(name: str) -> None:
    """Random walks that open records long before masks look at the end; far from it nothing is left out."""
    tokenizer = Tiny(resolve(name), 104 if name == "tiny-0.1m" else 404)
    held, rng = tokenizer.constraints(), np.random.default_rng(3)
    (end,) = tokenizer.eos
    opened = 0
    for most in (60, 200, 400):
        for _ in range(3):
            matcher, ids = held.matcher(Grammar.json(STEPS, close=True), left=most), []
            free = held.matcher(Grammar.json(STEPS))
            while ids[-1:] != [end]:
                left = most - len(ids)
                assert left > 0, "cut"
                allowed = matcher.allowed_tokens(left)
                way = matcher.way(left)
                assert way is not None, "the way is lost"
                if left > way + AHEAD:
                    assert (allowed == free.allowed_tokens()).all()
                ids.append(int(rng.choice(np.flatnonzero(allowed))))
                assert matcher.consume(ids[-1:]) and free.consume(ids[-1:])
            opened += len(json.loads(tokenizer.decode(ids[:-1]), strict=False)["steps"])
    assert opened


def test_a_way_that_is_lost_is_found_again_and_not_searched_for_at_every_token(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where searches find nothing the document goes on, says so near its limit, and closes as soon as it can."""
    tokenizer = Tiny(resolve("tiny-0.1m"), 104)
    held = tokenizer.constraints()
    ids = tokenizer.encode('{"steps":[{"op":"a long text of an operation","result":1}')
    matcher = held.matcher(Grammar.json(STEPS, close=True), left=400)
    searches: list[int] = []

    def none(self: Ways, start: Any, most: int, search: Any, near: Any = None) -> None:
        searches.append(most)

    monkeypatch.setattr(Ways, "_search", none)
    lost = 0
    for token in ids:
        assert matcher.consume([token])
        if matcher.way(400) is None:
            lost += 1
            with caplog.at_level("WARNING", logger="metagen"):
                assert matcher.allowed_tokens(50).any()
    assert lost > 16 and len(searches) < 8
    assert matcher.way(400) == len(tokenizer.encode('],"answer":0}')) + 1
    assert [r.message for r in caplog.records] == ["no end of a text was found near its limit"]


def test_what_ends_early_is_drawn_as_if_nothing_had_to_close() -> None:
    pattern = "a(b1|ab)*(1|bb)"
    with coin() as engine:
        texts = [
            [
                s.text
                for s in drawn(
                    engine, Sequence.of("?"), 40, grammar=Grammar.regex(pattern, close=close), max_tokens=200
                )
            ]
            for close in (False, True)
        ]
    assert texts[0] == texts[1] and max(map(len, texts[0])) < 60


def test_a_budget_cuts_where_it_ends_and_changes_nothing_that_is_drawn() -> None:
    with coin() as engine:
        writer = engine.generator(grammar=Grammar.regex("a[ab]{20,40}1", close=True), max_tokens=60)
        whole = Sample(writer).solve("?").sequence
        cut = Sample(writer).solve("?", budget=Budget(generated=8)).sequence
    assert whole.finish == "eos" and cut.finish == "length" and cut.exhausted
    assert cut.text and whole.text.startswith(cut.text) and len(cut.text) < len(whole.text)


def test_compact_json_has_no_white_space_between_its_parts() -> None:
    tokenizer = Tiny(resolve("tiny-0.1m"), 104)
    held, space = tokenizer.constraints(), tokenizer.encode("\n")[0]
    schema = record(a=STR)
    assert Grammar.json(schema, compact=False) == Grammar.json(schema) != Grammar.json(schema, compact=True)
    compact = [
        Grammar.json(given, compact=True) for given in (schema, json.dumps(schema), Person, {}, "true")
    ]
    for grammar in compact:
        assert json.loads(grammar.source)["x-guidance"] == {"whitespace_flexible": False}
    assert compact[0] == compact[1] and "x-guidance" not in schema
    kept = Grammar.json({**schema, "x-guidance": {"item_separator": ", "}}, compact=True)
    assert json.loads(kept.source)["x-guidance"] == {"item_separator": ", ", "whitespace_flexible": False}
    for grammar, free in ((Grammar.json(schema), True), (compact[0], False)):
        matcher = held.matcher(grammar)
        assert matcher.consume(tokenizer.encode("{")) and matcher.allowed_tokens()[space] == free
    matcher = held.matcher(compact[0])
    assert matcher.consume(tokenizer.encode('{"a":" x"}'))


def test_what_is_off_adds_nothing_to_the_name_of_a_grammar() -> None:
    assert repr(Grammar.regex("a")) == "Grammar(kind='regex', source='a')"
    assert repr(Grammar.regex("a", close=True, canonical=False)) == (
        "Grammar(kind='regex', source='a', canonical=False, close=True)"
    )
    with pytest.raises(InputError, match="close='yes': expected True or False"):
        Grammar("regex", "a", close="yes")  # type: ignore[arg-type]  # that is what is tested


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
