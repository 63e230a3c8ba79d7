"""A sample is made of a server's ids as engines make it that see one token after the other, in linear time."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from metagen.generators.continuation import Continuation
from metagen.generators.engine import GenerateRequest, Sample, SamplingParams
from metagen.generators.openai.answer import Choice, Malformed
from metagen.generators.openai.dialects import DIALECTS
from metagen.generators.openai.samples import Reader
from metagen.generators.openai.vocabulary import Vocabulary
from metagen.generators.tool_calls import split_calls
from metagen.sequence import Prompt, Sequence, Step

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """A token for each byte, and some for more: characters are spread over tokens."""
    ids = {letter: i for i, letter in enumerate([*ALPHABET, "ab", "bc", "Ċa", "Ċ"])}
    tokenizer = Tokenizer(models.BPE(ids, [("a", "b"), ("b", "c"), ("Ċ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("bytes")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"vocab_size": 262}))
    return Vocabulary(folder)


def request(most: int, text: str = "", **options: Any) -> GenerateRequest:
    until = options.pop("until", None)
    prefix = Sequence(Prompt("p", "x"), text=text)
    return GenerateRequest(prefix, (0,), SamplingParams(logprobs=True, **options), most, until)


def choice(ids: list[int], finish: str = "length") -> Choice:
    values = [-0.5 - i % 7 for i in range(len(ids))]
    return Choice.model_validate(
        {"text": "", "finish_reason": finish, "token_ids": ids, "logprobs": {"token_logprobs": values}}
    )


def one_by_one(
    asked: GenerateRequest, vocabulary: Vocabulary, ids: list[int], given: Choice
) -> Sample | None:
    """The rule itself."""
    continuation = Continuation(vocabulary.decode, asked, vocabulary.render(asked.prefix))
    values = given.token_logprobs() or []
    for k in range(1, len(ids) + 1):
        sample = continuation.sample(ids[:k], values[:k])
        if sample is not None:
            return sample
    return None


pieces = st.sampled_from(["a", "b", "c", "ab", "\n", "é", "日本", "🙂", " ", "\n\n", "x" * 30])


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(pieces, min_size=1, max_size=25),
    noise=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 259)), max_size=3),
    wanted=st.lists(st.sampled_from(["\n", "日", "é日", "bc", "🙂\n", "ca\n"]), max_size=2, unique=True),
    stepwise=st.booleans(),
    begun=st.sampled_from(["", "é", "b", "🙂"]),
)
def test_it_ends_where_it_ends_when_it_is_read_token_by_token(
    vocabulary: Vocabulary,
    texts: list[str],
    noise: list[tuple[int, int]],
    wanted: list[str],
    stepwise: bool,
    begun: str,
) -> None:
    """Also where ids that are no text stand between."""
    ids = list(vocabulary.encode("".join(texts)))
    for at, token in noise:
        ids.insert(at % (len(ids) + 1), token)
    until = Step(wanted[0]) if stepwise and wanted else None
    asked = request(len(ids), begun, until=until, stop=tuple(wanted[1:] if until else wanted))
    given = choice(ids)
    expected = one_by_one(asked, vocabulary, ids, given)
    reader = Reader(asked, DIALECTS["vllm"], vocabulary, vocabulary.render(asked.prefix))
    made = reader.sample(given, len(ids))
    assert expected is not None
    how = ("text", "ids", "finish", "cut", "step_end")
    assert [getattr(made, name) for name in how] == [getattr(expected, name) for name in how]


@pytest.mark.parametrize("stop", [(), ("\n\n",), ("no such text anywhere",)])
@pytest.mark.parametrize("letters", ["abc ", "日本🙂"])
def test_the_time_of_an_answer_grows_with_its_length(
    vocabulary: Vocabulary, stop: tuple[str, ...], letters: str
) -> None:
    def seconds(count: int) -> float:
        chance = Random(0)
        ids = list(vocabulary.encode("".join(chance.choices(letters, k=2 * count))))[:count]
        asked, given, taken = request(count, stop=stop), choice(ids), []
        for _ in range(3):
            reader = Reader(asked, DIALECTS["vllm"], vocabulary, vocabulary.render(asked.prefix))
            began = time.process_time()
            assert reader.sample(given, count).generated == count
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(16_000) < 8 * seconds(4_000)


@pytest.mark.parametrize("by", ["ids", "log-probabilities"])
@pytest.mark.parametrize("until", [None, Step("\n", 3)])
def test_more_tokens_than_were_asked_for_are_no_answer(
    vocabulary: Vocabulary, by: str, until: Step | None
) -> None:
    asked = request(5, until=until)
    known = vocabulary if by == "ids" else None
    given = choice([70] * 6) if by == "ids" else choice([]).model_copy(update=_six())
    with pytest.raises(Malformed, match=f"6 tokens where at most {3 if until else 5}"):
        Reader(asked, DIALECTS["vllm"], known, vocabulary.render(asked.prefix)).sample(given, None)


def test_what_is_charged_for_is_no_less_than_what_the_server_counts() -> None:
    """Of a model that thinks where nobody sees it, the tokens shown are not all."""
    given = choice([]).model_copy(update={**_six(), "text": "abc"})
    reader = Reader(request(50), DIALECTS["openai"], None, None)
    assert reader.sample(given, 40).generated == 40
    assert reader.sample(given, 2).generated == 6
    assert reader.sample(given, None).generated == 6


CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("drawn", "kept"),
    [
        ("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", False),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', True),
    ],
)
def test_calls_that_the_server_alone_reads_are_those_of_the_sample(
    vocabulary: Vocabulary, drawn: str, kept: bool
) -> None:
    """Its ids stay with it where metagen reads the same in them."""
    ids = list(vocabulary.encode(drawn))
    asked = request(len(ids))
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    given = choice(ids).model_dump() | {"text": None, "message": message}
    reader = Reader(asked, DIALECTS["vllm"], vocabulary, vocabulary.render(asked.prefix))
    made = reader.sample(Choice.model_validate(given), len(ids))
    content, (found,) = split_calls(made.text)
    assert content == "" and found["function"] == CALL["function"]
    assert made.ids == (tuple(ids) if kept else None) and made.generated == len(ids)


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_confidences_are_unknown_where_tokens_that_read_alike_are_told_as_one(dialect: Any) -> None:
    """vLLM names tokens by ids, so that fewer are fewer."""
    places = [{"a": -0.5, "b": -1.0}, {"\ufffd": -0.5}]
    logprobs = {"token_logprobs": [-0.5, -0.5], "top_logprobs": places}
    given = Choice.model_validate({"text": "a\ufffd", "finish_reason": "length", "logprobs": logprobs})
    reader = Reader(request(2, top_logprobs=2), DIALECTS[dialect], None, None)
    if dialect == "vllm":
        with pytest.raises(Malformed, match="fewer than the 2 most probable"):
            reader.sample(given, 2)
        return
    made = reader.sample(given, 2)
    assert (made.text, made.token_logprobs, made.token_confidences) == ("a\ufffd", (-0.5, -0.5), None)


def _six() -> dict[str, Any]:
    return {"logprobs": choice([70] * 6).logprobs}
