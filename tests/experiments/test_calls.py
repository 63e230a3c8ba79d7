"""The table of calls: as many as were paid for, each with what it waited for."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metagen.experiments import build, registry, runner, schema
from metagen.experiments.calls import AT_LEAST, LEVELS, ONE_BY_ONE, Known, beside
from metagen.experiments.directory import RunDirectory
from metagen.experiments.tables import read, read_calls
from metagen.journal import Row
from metagen.sequence import Prompt, Sequence, Step, digest

PROMPT = Prompt.of("1+1=?\n")


def row(kind: str, path: str, content: bytes, index: int = 0, text: str | None = "") -> Row:
    payload = None if text is None else {"text": text}
    return Row(b"", "p", path, kind, "by", content, index, payload)


def asked(text: str, until: Step | None = None) -> bytes:
    """Under which a sample is recorded that goes on from `text`."""
    return digest(Sequence(PROMPT, text).digest, repr(until))


def test_kinds_that_wait_in_ways_of_their_own_exist() -> None:
    assert set(registry.kinds("strategies")) >= LEVELS | AT_LEAST | ONE_BY_ONE


class TestKnown:
    """What a call waits for, from the digests and paths of those before it."""

    STEP = Step("\n", 8)

    def test_a_sample_waits_for_who_wrote_its_prefix_and_for_its_score(self) -> None:
        known = Known(PROMPT, ("None", repr(self.STEP)))
        first = known.add(row("generate", "0/node/0", asked("", self.STEP), text="a\n"), "generation")
        other = known.add(row("generate", "0/node/0", asked("", self.STEP), 1, text="b\n"), "generation")
        score = known.add(row("score", "0/node/0/score", Sequence(PROMPT, "a\n").digest), "judge")
        onward = known.add(row("generate", "0/node/0.0", asked("a\n", self.STEP), text="c"), "generation")
        to_the_end = known.add(row("generate", "0/node/0.1", asked("b\n"), text="d"), "generation")
        assert [one["parents"] for one in (first, other, score, onward, to_the_end)] == [
            [],
            [],
            [0],
            [0, 2],
            [1],
        ]
        assert [one["depth"] for one in (first, other, score, onward, to_the_end)] == [1, 1, 1, 2, 2]
        assert not any(one["assumed"] or one["waits"] for one in (first, other, score, onward, to_the_end))

    def test_equal_texts_are_one_to_who_judges_them(self) -> None:
        known = Known(PROMPT, ("None",))
        for i in range(3):
            known.add(row("generate", "0/sample", asked(""), i, text="ab"[i % 2]), "generation")
        assert known.add(row("score", "0/score", Sequence(PROMPT, "a").digest), "judge")["parents"] == [0, 2]

    def test_a_prompt_of_its_own_waits_for_all_that_does_not_stand_beside_it(self) -> None:
        known = Known(PROMPT, ("None",))
        for i in range(2):
            known.add(row("generate", f"0/sample/{i}/draft", asked(""), text=f"draft {i}"), "generation")
        for i in range(2):
            revised = known.add(row("generate", f"0/sample/{i}/revise/1", b"another prompt"), "generation")
            assert (revised["parents"], revised["assumed"]) == ([i], True)
        last = known.add(row("generate", "0/consistent", b"a third"), "generation")
        assert (last["parents"], last["assumed"]) == ([0, 1, 2, 3], True)

    def test_levels_are_told_by_paths(self) -> None:
        known = Known(PROMPT, ("None", repr(self.STEP)), levels=True)
        places = ["0/node/0", "0/node/0/score", "0/node/0.3", "0/node/0.3/score", "0/score"]
        kinds = ["generate", "score", "generate", "score", "score"]
        depths = [known.add(row(k, p, b"x"), "any")["depth"] for k, p in zip(kinds, places, strict=True)]
        assert depths == [1, 1, 2, 2, 3]
        again = known.add(row("generate", "0/iteration/1/node/0", b"x"), "any")
        assert again["depth"] > max(depths)
        assert again["waits"]

    def test_batches_wait_for_the_one_before(self) -> None:
        known = Known(PROMPT, ("None",), batch=2)
        found = [known.add(row("generate", "0/sample", asked(""), i), "generation") for i in range(5)]
        assert [(one["depth"], one["waits"]) for one in found] == [(1 + i // 2, True) for i in range(5)]


@pytest.mark.parametrize(
    ("one", "other", "side_by_side"),
    [
        ("0/sample", "0/sample", True),
        ("0/sample/1", "0/sample/2", True),
        ("0/sample/1/revise", "0/sample/2", True),
        ("0", "1", True),
        ("0/layer/0/1", "0/layer/0/2", True),
        ("0/layer/0/1", "0/layer/1/1", False),
        ("0/revise/1", "0/revise/2", False),
        ("0/sample", "0/score", False),
        ("0/node/0.1", "0/node/0.2", True),
        ("0/node/0.1", "0/node/0.1.3", False),
        ("0/node", "0/node/0", False),
    ],
)
def test_what_stands_side_by_side_is_told_by_paths(one: str, other: str, side_by_side: bool) -> None:
    assert beside(one, other) is beside(other, one) is side_by_side


#: Answers any prompt, so that it can be asked for a critique.
ANY = """
from metagen.generators.function import FunctionGenerator


def generator():
    return FunctionGenerator(
        lambda prefix, seed, index: f"step {seed % 97}\\nA:{seed % 5}", name="any", count=len, max_tokens=24
    )
"""


@pytest.fixture
def ran(
    experiment_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RunDirectory]:
    """Runs the toy experiment with a refinement."""
    (tmp_path / "metagen_any.py").write_text(ANY)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*, calls: bool = True) -> RunDirectory:
        text = experiment_file(count=3, n="[2, 4]").read_text()
        text = text.replace('"metagen_toy:generator", skill: 0.5, name: small', '"metagen_any:generator"')
        path = tmp_path / "refined.yaml"
        path.write_text(
            text.replace("strategies:\n", "strategies:\n  refined: {kind: self_refine, rounds: 2}\n")
        )
        more = ["grid.generators=[small]"]
        directory = RunDirectory.at(tmp_path / "run")
        with build.opened(schema.load(path, sets=more)) as setup:
            assert runner.run(setup, directory, calls=calls).failures == ()
        return directory

    return run


def test_every_sample_and_score_of_a_pool_is_a_call(ran: Callable[..., RunDirectory]) -> None:
    rows = read(ran().table("calls"), configuration="small").to_pylist()
    for problem in {one["problem"] for one in rows}:
        ours = [one for one in rows if one["problem"] == problem]
        assert [one["index"] for one in ours] == list(range(len(ours)))
        drawn = [one for one in ours if one["part"] == "generation"]
        assert [one["sample"] for one in drawn] == [0, 1, 2, 3]
        assert all(one["maker"] == "small" and one["parents"] == [] for one in drawn)
        judged = [one for one in ours if one["part"] == "judge"]
        assert {i for one in judged for i in one["parents"]} == {0, 1, 2, 3}


def test_calls_of_a_run_add_up_to_what_it_spent(ran: Callable[..., RunDirectory]) -> None:
    directory = ran()
    calls = read(directory.table("calls"), configuration="small/refined").to_pylist()
    outcomes = read(directory.table("outcomes"), configuration="small/refined").to_pylist()
    assert outcomes
    for outcome in outcomes:
        ours = [one for one in calls if one["problem"] == outcome["problem"]]
        assert sum(one["generated"] for one in ours) == outcome["generated"]
        assert len(ours) == outcome["calls"] >= 2
        # Draft, critique, revision: each waits for the one before.
        assert [bool(one["parents"]) for one in ours] == [i > 0 for i in range(len(ours))]
        assert all(one["assumed"] for one in ours[1:])


def test_calls_of_one_configuration_come_in_the_order_of_the_run(ran: Callable[..., RunDirectory]) -> None:
    path = ran().table("calls")
    every = read(path).to_pylist()
    names = {one["configuration"] for one in every}
    assert len(names) > 1
    for name in names:
        ours = sorted(
            (one for one in every if one["configuration"] == name), key=lambda r: (r["place"], r["index"])
        )
        assert read_calls(path, name).to_pylist() == ours
    assert len(read_calls(path, "nobody")) == 0
    # Another file under that name is another table.
    pq.write_table(read(path).slice(0, 0), path)
    assert len(read_calls(path, names.pop())) == 0


def test_a_run_has_the_table_only_if_it_is_asked_for(ran: Callable[..., RunDirectory]) -> None:
    directory = ran(calls=False)
    assert not directory.table("calls").exists()
    assert ran().table("calls").exists()
    assert not ran(calls=False).table("calls").exists()
