"""What parameters say of tokens, in the ids of a vocabulary; and adapters where torch is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from metagen.errors import InputError
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.decoding.words import Words, nothing_left
from metagen.generators.engine import SamplingParams

TEXTS = ["a", "b", " ", " a", "ab", "$"]


def encode(text: str) -> list[int]:
    """The longest token that fits; an id outside of the vocabulary where none does."""
    ids = []
    while text:
        fits = [t for t in TEXTS if text.startswith(t)]
        ids.append(TEXTS.index(max(fits, key=len)) if fits else len(TEXTS))
        text = text[len(max(fits, key=len)) if fits else 1 :]
    return ids


def decode(ids: list[int]) -> str:
    return "".join(map(TEXTS.__getitem__, ids))


def words(**params: object) -> Words:
    return Words.of(SamplingParams(**params), encode, decode, len(TEXTS), [5])  # type: ignore[arg-type]  # some of its fields


def test_texts_are_banned_as_they_are_written_alone_and_behind_a_space() -> None:
    assert words(banned=("a",)).banned == ((0,), (3,))
    assert words(banned=("ba", (5, 5))).banned == ((1, 0), (2, 1, 0), (5, 5))
    assert words(banned=(" a",)).banned == ((3,),)


def test_what_stands_for_text_that_has_no_token_is_no_spelling_of_it() -> None:
    """Unknown text is token 0: "b" is banned alone, and " b" is not there to be banned; "c" cannot be said at all."""

    def with_unknown(**params: object) -> Words:
        return Words.of(
            SamplingParams(**params),  # type: ignore[arg-type]  # some of its fields
            lambda text: [int(c == "b") for c in text],
            lambda ids: "".join(("<unk>", "b")[i] for i in ids),
            2,
            [],
        )

    assert with_unknown(banned=("b",)).banned == ((1,),)
    for params in ({"banned": ("c",)}, {"forced": "bc"}, {"logit_bias": {"c": 1.0}}):
        with pytest.raises(InputError, match=r"the tokens cannot write 'b?c'"):
            with_unknown(**params)


def test_a_space_that_decoding_drops_from_the_beginning_is_written_all_the_same() -> None:
    found = Words.of(SamplingParams(forced=" a"), encode, lambda ids: decode(ids).removeprefix(" "), 6, [])
    assert found.forced == (3,)


def test_a_space_that_encoding_puts_before_a_text_is_not_there_behind_other_text() -> None:
    """As SentencePiece does, whose first space goes again when a whole text is decoded."""
    tokenizer = Tokenizer(
        models.BPE(vocab={"▁": 0, "4": 1, "▁4": 2, "\n": 3, "f": 4, "▁f": 5}, merges=[("▁", "f")])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    assert tokenizer.encode("4").ids == [0, 1] and tokenizer.encode("f").ids == [5]

    def of(**params: object) -> Words:
        return Words.of(
            SamplingParams(**params),  # type: ignore[arg-type]  # some of its fields
            lambda text: tokenizer.encode(text).ids, tokenizer.decode, 6, [],
        )  # fmt: skip

    assert of(forced="4").forced == (1,) and of(forced=" f").forced == (5,)
    assert of(banned=("f",)).banned == ((4,), (5,))


def test_a_forced_text_has_room_and_a_token_has_one_bias() -> None:
    assert words(forced="abab", max_tokens=2).forced == (4, 4)
    with pytest.raises(InputError, match=r"'ababb': it is 3 tokens, and max_tokens=2 .*give max_tokens ≥ 3"):
        words(forced="ababb", max_tokens=2)
    with pytest.raises(InputError, match="'ab' is token 4, which has a bias already"):
        words(logit_bias={4: 1.0, "ab": 2.0})


def test_ends_are_those_of_the_model_and_of_the_user() -> None:
    assert words(min_tokens=3, stop_token_ids=(1, 5)).ends == (5, 1)
    assert words(min_tokens=3, stop_token_ids=(1,), ignore_eos=True).ends == (1,)
    assert words(stop_token_ids=(1,)) == Words()


def test_biases_and_what_is_forced() -> None:
    assert words(logit_bias={"ab": 2, 1: -1.0}).bias == ((1, -1.0), (4, 2.0))
    assert words(forced="abb").forced == (4, 1)
    held = words(forced=(4, 1))
    for fine in ((), (4,), (4, 1), (4, 1, 3)):
        held.check(fine)
    for other in ((1,), (4, 4), (4, 0, 1)):
        with pytest.raises(InputError, match=r"forced=\(4, 1\)"):
            held.check(other)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"banned": ("ac",)}, "cannot write 'ac'"), ({"banned": ((6,),)}, "6 is no id"), ({"forced": "c"}, "write 'c'"),
        ({"forced": (-1,)}, "a list of ids ≥ 0"), ({"logit_bias": {"ba": 1.0}}, r"'ba' is 2 tokens, \(1, 0\)"),
        ({"logit_bias": {9: 1.0}}, "9 is no id"),
    ],
)  # fmt: skip
def test_what_the_tokens_cannot_say_is_refused(params: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        words(**params)


def test_the_error_for_nothing_left_names_what_took_part_and_no_more() -> None:
    said = str(nothing_left(SamplingParams(banned=("a",), no_repeat_ngram=2), "p7", 3))
    assert "'p7'" in said and "after 3 tokens" in said
    assert "banned=('a',) and no_repeat_ngram=2 allow" in said
    assert "grammar" not in said and "min_tokens" not in said
    phrases = SamplingParams(search=ConstrainedBeamSearch(phrases=("a",)))
    assert "is left that search=ConstrainedBeamSearch(" in str(nothing_left(phrases, "p7", 3))
    assert str(nothing_left(SamplingParams(banned=("a",)), "", 3)).startswith("after 3 tokens")


def test_without_torch_an_enumerable_model_has_the_plain_adapters_and_names_the_remedy_for_others() -> None:
    code = """
import sys
sys.modules["torch"] = None
from metagen.errors import UnsupportedError
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
engine = EnumerableEngine("ab$", lambda prompt, done: (0.5, 0.3, 0.2), name="m")
print(len(engine.sequences("?", SamplingParams(temperature=0.5, top_k=2, top_p=0.9), max_tokens=2)))
try:
    engine.sequences("?", SamplingParams(min_p=0.1))
except UnsupportedError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("4\n") and "min_p=0.1: this adapter needs torch" in shown
    assert "pip install -e '.[torch]'" in shown
