"""Thoughts in recorded pools: in a field beside the answers, or in their texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError
from metagen.generators.pool import PoolFile, Recorded, read_pool
from metagen.generators.replay import ReplayGenerator
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Thought
from tests.generators.test_replay import run

END = "</think>"
FIELDS = {"thoughts": "reasoning"}


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"id": "p", **record}) + "\n" for record in records), "utf-8")
    return path


def drawn(pool: ReplayGenerator) -> dict[str, Sequence]:
    """All samples of the problem, by their thought, or else their text."""
    n = pool.size("p")
    sequences = run(pool.generate(Sequence(Prompt("p", text="?")), n=n, scope=Scope.root("p")))
    return {(one.thought.text if one.thought else None) or one.text: one for one in sequences}


@pytest.mark.parametrize(
    "records",
    [
        [{"texts": ["4", "5", None, " ", None, ""], "reasoning": ["hm", None, "mm", "uh", None, ""]}],
        [
            {"texts": text, "reasoning": thought}
            for text, thought in zip(
                ["4", "5", None, " ", None, ""], ["hm", None, "mm", "uh", None, ""], strict=True
            )
        ],
        [
            {
                "texts": [
                    {"content": "4", "reasoning": "hm"},
                    "5",
                    {"content": None, "reasoning": "mm"},
                    {"content": " ", "reasoning": "uh"},
                    None,
                    {"content": "", "reasoning": ""},
                ]
            }
        ],
    ],
    ids=["lists", "one a line", "objects"],
)
def test_thoughts_in_a_field_are_told_apart_from_answers(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    (found,) = read_pool(written(tmp_path / "p.jsonl", *records), FIELDS).values()
    assert found == [
        Recorded("4", thought=Thought("hm")),
        Recorded("5"),
        Recorded("", thought=Thought("mm", ended=False)),
        Recorded("", thought=Thought("uh", ended=False)),
        Recorded(None),
        Recorded(""),
    ]


def test_thoughts_in_texts_are_told_apart_as_a_server_s_are(tmp_path: Path) -> None:
    texts = ["<think>\nhm\n</think>\n\n4", "uh</think>4", "<think>mm", "4", "<think></think>4", None]
    path = written(tmp_path / "p.jsonl", {"texts": texts, "tokens": [9, 8, 7, 6, 5, 4]})
    (found,) = read_pool(path, {"generated": "tokens"}, thought_end=END).values()
    assert [(r.text, r.thought) for r in found] == [
        ("4", Thought("hm", None, "<think>\nhm\n</think>\n\n")),
        ("4", Thought("uh", None, "uh</think>")),
        ("", Thought("mm", 7, "<think>mm", ended=False)),
        ("4", None),
        ("4", Thought("", None, "<think></think>")),
        (None, None),
    ]
    (plain,) = read_pool(path).values()
    assert [r.text for r in plain] == texts


def test_a_field_without_a_thought_leaves_it_to_the_text(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", {"texts": ["a</think>4", "5"], "reasoning": [None, "b"]})
    (found,) = read_pool(path, FIELDS, thought_end=END).values()
    assert [(r.text, r.thought and r.thought.text) for r in found] == [("4", "a"), ("5", "b")]


def test_samples_have_their_thoughts_and_one_that_was_cut_is_no_empty_answer(tmp_path: Path) -> None:
    """Equal answers with different thoughts are different samples."""
    path = written(
        tmp_path / "p.jsonl", {"texts": ["4", "4", None, ""], "reasoning": ["hm", "uh", "mm", None]}
    )
    sequences = drawn(ReplayGenerator.from_jsonl(path, FIELDS))
    assert {name: (one.text, one.finish, one.cut_in_thought) for name, one in sequences.items()} == {
        "hm": ("4", "eos", False),
        "uh": ("4", "eos", False),
        "mm": ("", "length", True),
        "": ("", "eos", False),
    }
    inline = written(tmp_path / "q.jsonl", {"texts": ["<think>hm</think>\n4", "<think>mm"]})
    sequences = drawn(ReplayGenerator.from_jsonl(inline, thought_end=END))
    assert sequences["hm"].written == "<think>hm</think>\n4" and sequences["hm"].text == "4"
    assert sequences["mm"].cut_in_thought


def test_what_a_file_does_not_say_of_thoughts_is_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p.jsonl", {"texts": ["4", "5", "<think>mm", None], "reasoning": ["hm", None, None, None]}
    )
    assert ReplayGenerator.from_jsonl(path, FIELDS, thought_end=END).notes == (
        "1 of 4 samples are null: they abstain, and have no vote",
        "1 of 4 samples have no thought ('reasoning' is null, no '</think>' in the text): each is read as an answer; "
        "the file does not say whether it is a thought that was cut",
    )
    assert "1 of 4 samples hold <think> or </think>, which is read as part of the answer" in " ".join(
        ReplayGenerator.from_jsonl(path, FIELDS).notes
    )
    assert not [note for note in ReplayGenerator.from_jsonl(path).notes if "no thought" in note]


def test_a_thought_is_something_that_was_recorded(tmp_path: Path) -> None:
    """No failed call, then, but for one with an error."""
    samples = [None, None, {"error": "timeout"}]
    record = {"texts": samples, "ok": [None, None, None], "reasoning": ["hm", None, "mm"]}
    other = {"id": "q", "texts": ["4"], "ok": [1], "reasoning": ["hm"]}
    path = written(tmp_path / "p.jsonl", record, other)
    assert [r.failed for r in read_pool(path, {**FIELDS, "correct": "ok"})["p"]] == [False, True, True]


def test_the_fingerprint_names_thoughts(tmp_path: Path) -> None:
    named = {ReplayGenerator({"p": [Recorded("4", thought=t)]}).fingerprint for t in (None, Thought("a"))}
    assert len({*named, ReplayGenerator({"p": [Recorded("4", thought=Thought("b"))]}).fingerprint}) == 3


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"texts": ["4", "5"], "reasoning": ["hm"]},
            r"line 1: 'reasoning' is \['hm'\]; .* it has 1 for 2 samples; write null for those without",
        ),
        ({"texts": ["4"]}, "line 1 has no field 'reasoning'"),
        (
            {"texts": ["4"], "reasoning": "hm"},
            "line 1: 'reasoning' is 'hm'; expected a list with one entry a",
        ),
        (
            {"texts": ["4"], "reasoning": [["hm"]]},
            r"line 1: a thought is \['hm'\]; expected a text, or null for a sample without one",
        ),
        ({"texts": "4", "reasoning": 3}, "line 1: a thought is 3; expected a text, or null"),
    ],
)
def test_what_are_no_thoughts_is_refused(record: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_pool(written(tmp_path / "p.jsonl", record), FIELDS)


@pytest.mark.parametrize(
    ("fields", "end", "where"),
    [
        (FIELDS, "", r"\('reasoning' is null\); leave out fields.thoughts"),
        ({}, END, r"\(no '</think>' in the text\); leave out thought_end"),
        (
            FIELDS,
            END,
            r"\('reasoning' is null, no '</think>' in the text\); leave out fields.thoughts and tho",
        ),
    ],
)
def test_thoughts_that_no_sample_has_are_refused(
    fields: dict[str, str], end: str, where: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "p.jsonl", {"texts": ["4", None], "reasoning": [None, ""]})
    with pytest.raises(DataError, match=f"no sample of the pool 'p.jsonl' has a thought {where}"):
        ReplayGenerator.from_jsonl(path, fields, thought_end=end)
    assert list(PoolFile(path, fields)) == ["p"], "whoever reads ids alone is not concerned"
