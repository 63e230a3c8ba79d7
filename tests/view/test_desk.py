"""What the viewer tells of runs: figures of tables, calls of journals, and of a run without an end so far."""

import asyncio
import contextlib
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metagen.attempts import lost_attempts
from metagen.errors import InputError, MetagenError
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.retries import Patience
from metagen.journal import SQLiteJournal
from metagen.runs.curves.measured import derive
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read
from metagen.runs.work.makers import Makers
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.view import ledger
from metagen.view.desk import expected
from metagen.view.replay import Replayer
from metagen.view.shelf import Shelf
from tests.generators.openai.serving import Asked, Reply, Server, answer
from tests.view.conftest import CHAIN, FIRST, POOLED, SEARCH, Runs, desk, interrupt


def test_runs_are_found_below_directories_and_in_studies(runs: Runs, tmp_path: Path) -> None:
    study = tmp_path / "family"
    study.mkdir()
    (study / "study.yaml").touch()
    shutil.copytree(runs.one.root, study / "test")
    assert list(Shelf((runs.root,)).runs()) == ["one", "two"]
    assert list(Shelf((runs.one.root,)).runs()) == ["one"]
    assert list(Shelf((runs.one.root, runs.root)).runs()) == ["one", "two"]
    assert list(Shelf((tmp_path,)).runs()) == list(Shelf((study,)).runs()) == ["family/test"]
    with pytest.raises(InputError, match="there is no directory"):
        Shelf((tmp_path / "nothing",))


def test_a_run_that_comes_later_is_found(runs: Runs, tmp_path: Path) -> None:
    shelf = Shelf((tmp_path,))
    assert shelf.runs() == {}
    (tmp_path / "one").symlink_to(runs.one.root, target_is_directory=True)
    assert list(shelf.runs()) == ["one"]


def test_a_name_is_never_a_path(runs: Runs) -> None:
    with desk(runs.one.root) as told:
        for name in ("../two", str(runs.two.root), "one/../../two", ""):
            with pytest.raises(InputError, match="there is no run"):
                told.run(name)


def test_a_file_that_is_a_link_to_a_place_outside_is_not_read(copied: RunDirectory, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("name: secret")
    copied.experiment.unlink()
    copied.experiment.symlink_to(secret)
    with desk(copied.root) as told:
        with pytest.raises(InputError, match=r"'experiment\.yaml' of the run 'one' is a link"):
            told.experiment("one")
        (listed,) = told.runs()
    assert "secret" not in json.dumps(listed) and "link" in listed["error"]


def test_the_figures_are_those_of_the_tables(runs: Runs) -> None:
    with desk(runs.root) as told:
        results, state = told.results("one"), told.run("one")
        problems = told.problems("one")["problems"]
    measured = derive(runs.one, runs.one.state().lines).configurations
    assert [(c["configuration"], c["accuracy"], c["flops"]) for c in results["configurations"]] == [
        (m.cell.name, m.accuracy, m.flops) for m in measured
    ]
    assert not results["so_far"] and results["headline"]
    assert [p["id"] for p in problems] == [f"arithmetic/test/2/{i}" for i in range(4)]
    outcomes = read(runs.one.table("outcomes"), configuration=SEARCH).to_pylist()
    told_of = {p["id"]: p["outcomes"][SEARCH] for p in problems}
    assert told_of == {o["problem"]: o["correct"] for o in outcomes}
    assert state["delivered"] == state["expected"] == expected(runs.one.state())


def test_what_was_spent_is_the_sum_of_the_records(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST", 7)
    looks = 0
    with SQLiteJournal(runs.one.journal, read_only=True) as journal:
        book = ledger.Ledger()
        while not book.whole:
            book.read(journal)
            looks += 1
        rows = [row for problem in journal.problems() for row in journal.of_problem(problem)]
    assert looks > 3
    assert book.total("generated") == sum(row.usage.generated or 0 for row in rows)
    assert sum(spent.records for spent in book.spent.values()) == len(rows)
    assert sum(book.problems.values()) == len(rows) and len(book.problems) == 4


def test_an_amount_that_a_record_does_not_know_is_unknown(runs: Runs) -> None:
    book = ledger.Ledger()
    with SQLiteJournal(runs.one.journal, read_only=True) as journal:
        book.read(journal)
    assert book.total("flops") is not None
    spent = next(iter(book.spent.values()))
    spent.sums["flops"] = None
    assert book.total("flops") is None


def test_attempts_are_counted_until_their_items_end(tmp_path: Path) -> None:
    """Two samples end, one request of three breaks off, and one is free."""

    async def handler(asked: Asked) -> Reply:
        if asked.number == 2:
            return Reply(body=answer(), cut=3)
        return Reply(400, {"error": {"message": "no"}}) if asked.number == 3 else Reply(body=answer())

    with (
        Server(handler).open() as server,
        OpenAIEngine("m", base_url=server.url, patience=Patience(attempts=1)) as engine,
        SQLiteJournal(tmp_path / "journal.sqlite") as journal,
    ):
        for number in range(4):
            scope = Scope.root(f"p{number}", journal=journal)
            with contextlib.suppress(MetagenError):
                asyncio.run(engine.generator().generate(Sequence.of(Prompt.of("What?")), scope=scope))
        assert sum(len(lost_attempts(journal, f"p{number}")) for number in range(4)) == 1
        book = ledger.Ledger()
        book.read(journal)
    assert len(book.attempts) == 1 and book.data(Makers())["attempts"] == 1


def test_a_new_run_that_several_requests_find_has_one_name(runs: Runs) -> None:
    shelf = Shelf((runs.root,))
    start = threading.Barrier(8)

    def look(_: int) -> list[str]:
        start.wait()
        return list(shelf.runs())

    with ThreadPoolExecutor(8) as threads:
        assert {tuple(found) for found in threads.map(look, range(8))} == {("one", "two")}


def test_a_search_is_told_as_the_tree_that_it_was(runs: Runs) -> None:
    with desk(runs.root) as told:
        found = told.replay("one", FIRST, SEARCH)
    outcome = read(runs.one.table("outcomes"), configuration=SEARCH, problem=FIRST).to_pylist()[0]
    assert found["whole"] and found["text"] == outcome["text"]
    (tree,) = found["trees"]
    nodes = {node["name"]: node for node in tree["nodes"]}
    assert all(node["parent"] in nodes for node in tree["nodes"][1:])
    leaves = [node for node in tree["nodes"] if node["chosen"] and node["state"] == "finished"]
    assert len(leaves) == 1
    # The way to what was chosen is the text that was returned, step by step.
    way, at = [], leaves[0]["name"]
    while nodes[at]["parent"] is not None:
        way.append(nodes[at]["step"])
        assert nodes[at]["chosen"]
        at = nodes[at]["parent"]
    assert "".join(reversed(way)) == outcome["text"]
    assert (
        sum(node["generated"] for node in tree["nodes"])
        == outcome["generated"]
        == found["usage"]["generated"]
    )
    assert all(0 <= node["value"] <= 1 for node in tree["nodes"][1:])


def test_calls_say_whom_they_waited_for(runs: Runs) -> None:
    with desk(runs.root) as told:
        calls = told.replay("one", FIRST, SEARCH)["calls"]
    clocks = {call["number"]: call["clock"] for call in calls}
    assert calls[0]["after"] == () or calls[0]["after"] == []
    for call in calls:
        assert call["clock"] == 1 + max((clocks[number] for number in call["after"]), default=0)
    assert {call["kind"] for call in calls} == {"generate", "score"}
    assert {call["maker"] for call in calls} == {"mid", "prm"}


def test_a_chain_tells_what_it_went_on_from(runs: Runs) -> None:
    with desk(runs.root) as told:
        thought, answer = told.replay("one", FIRST, CHAIN)["calls"]
    assert thought["asked"] == {"same": True, "messages": [], "prefix": ""}
    assert answer["after"] == [thought["number"]] and answer["asked"]["same"]
    assert answer["asked"]["prefix"].startswith(thought["items"][0]["text"].rstrip("\n")[:5])
    assert answer["asked"]["prefix"].endswith("A:")


def test_a_pooled_configuration_is_told_from_the_pool(runs: Runs) -> None:
    with desk(runs.root) as told:
        sampling, scoring = told.replay("one", FIRST, POOLED)["calls"]
    assert len(sampling["items"]) == 4 and scoring["kind"] == "score"
    assert scoring["after"] == [sampling["number"]]


def test_what_there_is_not_is_an_error_with_the_nearest_names(runs: Runs) -> None:
    with desk(runs.root) as told:
        with pytest.raises(InputError, match=r"no problem 'arithmetic/test/2/9'; did you mean"):
            told.problem("one", "arithmetic/test/2/9")
        with pytest.raises(InputError, match=r"no problem 'nowhere'"):
            told.replay("one", "nowhere", SEARCH)
        with pytest.raises(InputError, match=r"no configuration 'mid/rebase@5'; did you mean 'mid/rebase@4'"):
            told.replay("one", FIRST, "mid/rebase@5")
        with pytest.raises(InputError, match=r"there is no run 'tow' here; did you mean 'two'"):
            told.run("tow")


def test_a_configuration_is_copied_as_yaml_and_as_a_script_that_runs(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Replayer(runs.one) as replayer:
        made = replayer.recipe(SEARCH)
        whole = replayer.replay(FIRST, SEARCH)
    assert "kind: rebase" in made["yaml"] and "majority" not in made["yaml"]
    monkeypatch.chdir(tmp_path)
    exec(compile(made["python"], "copied.py", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith(whole["text"])


# ---------------------------------------------------------------------------------------- without an end


def test_a_run_without_an_end_is_told_so_far(copied: RunDirectory) -> None:
    interrupt(copied, "problem = 'arithmetic/test/2/1'")
    with desk(copied.root) as told:
        (listed,) = told.runs()
        state, results = told.run("one"), told.results("one")
        problems = told.problems("one")["problems"]
        problem = told.problem("one", FIRST)
    assert listed["state"] == state["state"] == "interrupted"
    assert state["going"] and state["delivered"] is None and "metagen resume" in state["resume"]
    assert results["so_far"] and results["headline"] == []
    assert [p["id"] for p in problems] == [f"arithmetic/test/2/{i}" for i in (0, 2, 3)]
    assert {c["problems"] for c in results["configurations"]} == {3}
    assert results["delivered"] == expected(copied.state()) * 3 // 4
    assert problem["so_far"] and problem["pools"][0]["size"] == 4


def test_a_run_that_is_written_is_running_and_grows(runs: Runs, copied: RunDirectory) -> None:
    interrupt(copied, "problem != 'arithmetic/test/2/0'")
    with SQLiteJournal(runs.one.journal, read_only=True) as journal:
        rows = journal.of_problem("arithmetic/test/2/1")
    with desk(copied.root) as told, SQLiteJournal(copied.journal, seed=0) as writer:
        (before,) = told.runs()
        assert before["state"] == "running" and before["begun"] == 1
        tokens = before["generated"]
        asyncio.run(writer.record(rows))
        (after,) = told.runs()
        assert after["begun"] == told.run("one")["ledger"]["problems"] == 2
        assert after["generated"] == tokens + sum(row.usage.generated or 0 for row in rows)


def test_a_search_under_way_is_told_as_far_as_it_is_recorded(copied: RunDirectory) -> None:
    with desk(copied.root) as told:
        whole = told.replay("one", FIRST, SEARCH)
    deepest = max((call["path"] for call in whole["calls"]), key=len)
    node = deepest.removesuffix("/score")
    interrupt(copied, f"problem = '{FIRST}' AND (path = '{node}' OR path = '{node}/score')")
    with desk(copied.root) as told:
        part = told.replay("one", FIRST, SEARCH)
    assert not part["whole"] and part["text"] is None and "as far as it is recorded" in part["note"]
    assert 0 < len(part["calls"]) < len(whole["calls"])
    (tree,), (grown,) = part["trees"], whole["trees"]
    names = {node["name"]: node["step"] for node in grown["nodes"]}
    assert 1 < tree["size"] < grown["size"] and not tree["chosen"]
    assert all(names[node["name"]] == node["step"] for node in tree["nodes"])


def test_a_run_of_which_nothing_is_finished_says_so(copied: RunDirectory) -> None:
    interrupt(copied, "1")
    with desk(copied.root) as told:
        results = told.results("one")
    assert results["configurations"] == [] and "has not finished any part of its work" in results["why"]


def test_looking_leaves_no_trace_and_does_not_make_a_run_look_fresh(copied: RunDirectory) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copied.root.iterdir() if path.is_file()}
    with desk(copied.root) as told:
        (first,) = told.runs()
        told.results("one"), told.problem("one", FIRST), told.replay("one", FIRST, SEARCH)
        (second,) = told.runs()
    assert second["age"] >= first["age"]
    after = {path.name: path.stat().st_mtime_ns for path in copied.root.iterdir() if path.is_file()}
    assert after == before


# ---------------------------------------------------------------------------------------------- two runs


def test_two_runs_are_compared_problem_by_problem(runs: Runs) -> None:
    with desk(runs.root) as told:
        data = told.compare("one", "two")
    assert (data["a"], data["b"]) == ("one", "two") and data["problems"]["both"] == 4
    search = next(c for c in data["configurations"] if c["name"] == SEARCH)
    for side, run in (("a", runs.one), ("b", runs.two)):
        rows = read(run.table("outcomes"), configuration=SEARCH).to_pylist()
        assert {id: pair[side] for id, pair in search["problems"].items()} == {
            row["problem"]: float(row["correct"]) for row in rows
        }
    json.dumps(data, allow_nan=False)
