"""Every study has the two baselines that everything else must beat, unless it says that it wants none."""

from pathlib import Path
from typing import Any

from metagen.runs import study as run
from metagen.runs.declare import baselines, plan
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.source import write
from metagen.runs.directory import StudyDirectory

FILE: dict[str, Any] = {
    "name": "small",
    "task": {"kind": "arithmetic", "split": "test", "levels": [1, 2], "per_level": 4},
    "engines": {"model": {"kind": "torch", "model": "tiny-0.1m"}},
    "generators": {"warm": {"engine": "model", "max_tokens": 60}},
    "strategies": {"majority": {"kind": "majority"}},
    "grid": {"n": [1, 4]},
}
TUNED = {
    "development": {
        "task": {"split": "validation", "seed": 70, "per_level": 2},
        "trials": 2,
        "n": 4,
        "settings": {"majority": [{}, {"generator.temperature": 0.5}]},
    }
}


def study(tmp_path: Path, **changes: Any) -> schema.Study:
    path = tmp_path / "small.yaml"
    path.write_text(write({**FILE, **changes}))
    return schema.load(path)


def test_a_file_without_baselines_gets_both(tmp_path: Path) -> None:
    found = study(tmp_path).experiment
    assert set(found.grid.cells) == {("warm", "majority"), ("warm", "greedy"), ("warm", "single")}
    assert {name: spec.kind for name, spec in found.strategies.items()} == {
        "majority": "majority", "greedy": "greedy", "single": "sample",
    }  # fmt: skip


def test_what_was_added_reads_back_as_it_is(tmp_path: Path) -> None:
    first = study(tmp_path, study=TUNED)
    copy = tmp_path / "copy.yaml"
    copy.write_text(schema.dump(first))
    again = schema.load(copy)
    assert (again.experiment, again.spec) == (first.experiment, first.spec)


def test_a_study_may_refuse_them_and_is_told_what_that_means(tmp_path: Path) -> None:
    found = study(tmp_path, study={"baselines": False})
    assert found.experiment.grid.cells == (("warm", "majority"),)
    (note,) = baselines.notes(found.experiment, found.spec)
    assert note.about == "warm" and "no greedy decoding and one sample" in note.text
    assert not list(baselines.notes(study(tmp_path).experiment, study(tmp_path).spec))


def test_what_a_file_has_under_other_names_is_not_added_again(tmp_path: Path) -> None:
    given = {"one": {"kind": "sample"}, "argmax": {"kind": "greedy"}, "greedy": {"kind": "majority"}}
    assert set(study(tmp_path, strategies=given).experiment.strategies) == set(given)
    taken = study(tmp_path, strategies={"greedy": {"kind": "majority"}, "single": {"kind": "majority"}})
    assert taken.experiment.strategies["greedy-baseline"].kind == "greedy"
    assert taken.experiment.strategies["single-baseline"].kind == "sample"


def test_pairs_stay_pairs(tmp_path: Path) -> None:
    generators = {"warm": FILE["generators"]["warm"], "cold": {"engine": "model", "temperature": 0.0}}
    grid = {"n": [4], "pairs": [["warm", "majority"], ["cold", "majority"]]}
    found = study(tmp_path, generators=generators, grid=grid).experiment
    assert set(found.grid.cells) == {
        ("warm", "majority"), ("warm", "greedy"), ("warm", "single"), ("cold", "majority"), ("cold", "single"),
    }  # fmt: skip


def test_one_sample_is_tuned_at_the_temperatures_of_others(tmp_path: Path) -> None:
    found = study(tmp_path, study=TUNED)
    assert found.spec.development is not None
    assert found.spec.development.settings["single"] == ({}, {"generator.temperature": 0.5})
    own = {**TUNED["development"], "settings": {"single": [{"generator.top_p": 0.9}]}}
    ours = {"single": {"kind": "sample"}}
    told = study(tmp_path, strategies=ours, study={"development": own}).spec.development
    assert told is not None and told.settings["single"] == ({"generator.top_p": 0.9},)
    other = {**TUNED["development"], "trials": 3, "settings": {"majority": [{}]}}
    usual = study(tmp_path, study={"development": other}).spec.development
    assert usual is not None
    assert usual.settings["single"] == ({}, *({"generator.temperature": t} for t in baselines.TEMPERATURES))


def test_recorded_samples_cannot_be_decoded_again_and_the_report_says_so(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"id": "a", "question": "?", "gold": "1", "answers": ["1", "2"]}\n')
    recorded = study(
        tmp_path,
        task={"kind": "jsonl", "path": str(pool), "fields": {"answer": "gold"}},
        engines={},
        generators={"theirs": {"kind": "replay", "path": str(pool), "fields": {"texts": "answers"}}},
        grid={"n": [2]},
    )
    assert recorded.experiment.grid.cells == (("theirs", "majority"),)
    (note,) = baselines.notes(recorded.experiment, recorded.spec)
    assert "recorded; compare with the greedy accuracy" in note.text


def test_the_temperature_of_one_sample_is_chosen_by_a_pool_and_not_by_one_draw(tmp_path: Path) -> None:
    settings = {"single": [{}, {"generator.temperature": 0.3}]}
    single = {"single": {"kind": "sample"}}
    found = study(
        tmp_path, strategies=single, study={"development": {**TUNED["development"], "settings": settings}}
    )
    part = plan.development(found)
    assert part is not None
    pools = {
        pair for pair in part.experiment.grid.cells if part.experiment.strategies[pair[1]].kind == "majority"
    }
    assert {generator for generator, _ in pools} == {"warm", "warm.temperature-0.3"}


def test_a_study_compares_with_both(tmp_path: Path) -> None:
    found = study(tmp_path, study=TUNED)
    result = run.run(found, tmp_path / "run")
    tuned = {(one.model, one.strategy): one for one in result.tuned}
    assert set(tuned) == {("warm", "single"), ("warm", "majority")}
    assert set(tuned["warm", "single"].settings) == {"as written", "generator.temperature=0.5"}
    assert {curve.kind for curve in result.curves} >= {"greedy", "sample", "majority"}
    assert StudyDirectory(tmp_path / "run").frozen.exists()
