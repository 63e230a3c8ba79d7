"""Judges from the options of an experiment file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.models import sources
from metagen.generators.torch import TorchEngine
from metagen.runs.declare.schema import load
from metagen.runs.work.build import open_setup
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing import run
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.pairwise import Tournament
from metagen.verifiers.generative.question import RUBRIC
from metagen.verifiers.generative.way import with_wording

#: As YAML has them.
TAGS = {
    "template": "{task}{candidate}",
    "labels": {"<+>": 1, "<->": 0},
    "cue": "<step>",
    "join": "",
    "chat": False,
}
STEPS = [Sequence.of(Prompt("p", text="Q:a=12+7;a?\nS:\n")).extend(s) for s in ("a=12+7=19\n", "a=12+7=18\n")]

FILE = """\
name: judged
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines: {model: {kind: torch, model: tiny-0.1m}, judge: {kind: torch, model: tiny-prm}}
generators: {small: {engine: model, temperature: 1.0, max_tokens: 60}}
verifiers:
  judge:
    kind: "metagen.verifiers.generative.judge:Judge"
    engine: judge
    template: "{task}{candidate}"
    labels: {"<+>": 1, "<->": 0}
    cue: "<step>"
    join: ""
    chat: false
    critiques: 2
    max_tokens: 4
strategies: {judged: {kind: best_of_n, verifier: judge}}
grid: {n: [2]}
"""


def test_one_completion_and_pairs_by_the_same_words() -> None:
    pairs = {**TAGS, "template": "{task}{first}{second}"}

    async def both(scope: Scope) -> tuple[list[Score], list[Score]]:
        alone = Judge(engine, **TAGS)  # type: ignore[arg-type]
        paired = Tournament(engine, merge="log-odds", **pairs)  # type: ignore[arg-type]
        return await alone.score(STEPS, scope=scope), await paired.score(STEPS, scope=scope)

    with TorchEngine("tiny-prm", threads=1) as engine:
        (alone, paired), rows = run(both, problem="p")
    assert alone[0].value is not None and alone[0].value > 0.9
    assert paired[0].value is not None and paired[1].value is not None
    assert paired[0].value + paired[1].value == pytest.approx(1.0) and len(rows) == 2 + 2


def test_a_critic_stops_before_its_verdict() -> None:
    with TorchEngine("tiny-prm", threads=1) as engine:
        verifier = Judge(engine, critiques=3, max_tokens=5, temperature=0.7, **TAGS)  # type: ignore[arg-type]
        critic = verifier.respondent.critic  # type: ignore[attr-defined]  # of this kind of judge
        assert (critic.params.stop, critic.params.max_tokens, critic.params.temperature) == (
            ("<step>",),
            5,
            0.7,
        )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"temperature": 0.7}, r"temperature=0\.7: .* nothing is written; leave it out, or give critiques"),
        ({"max_tokens": 5}, "max_tokens=5: "),
        ({"by": "samples", "normalise": False}, "normalise=False: of probabilities of labels"),
        (
            {"by": "samples", "samples": 8, "temperature": 0},
            "temperature=0.*: 8 answers would be one text 8 times",
        ),
        ({"critiques": 2, "temperature": 0}, "one text 2 times; give critiques=1, or a temperature > 0"),
    ],
)
def test_what_would_do_nothing_is_refused(fields: dict[str, Any], says: str) -> None:
    with TorchEngine("tiny-prm", threads=1) as engine:
        with pytest.raises(InputError, match=says):
            Judge(engine, **fields)
        with pytest.raises(InputError, match=says):
            Tournament(engine, merge="log-odds", **fields)
        written = Judge(engine, temperature=0.7, max_tokens=5, by="samples").respondent.generator  # type: ignore[attr-defined]
        assert (written.params.temperature, written.params.max_tokens) == (0.7, 5)
        assert Judge(engine, temperature=0, by="samples").respondent.samples == 1  # type: ignore[attr-defined]


def test_labels_may_be_numbers_and_unknown_words_are_refused() -> None:
    assert with_wording(RUBRIC, {"labels": {1: 0, 2: 1}}).labels == {"1": 0.0, "2": 1.0}
    with pytest.raises(InputError, match="'tempalte'; did you mean 'template'"):
        Judge(None, tempalte="x")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="expected labels with what each is worth"):
        Judge(None, labels=["a", "b"])  # type: ignore[arg-type]
    with (
        TorchEngine("tiny-prm", threads=1) as engine,
        pytest.raises(InputError, match="one of correct, rubric"),
    ):
        Judge(engine, ask="style")


def test_an_experiment_file_may_name_a_judge(tmp_path: Path) -> None:
    file = tmp_path / "judged.yaml"
    file.write_text(FILE, encoding="utf-8")
    with open_setup(load(file)) as setup:
        strategy = setup.strategy(setup.configurations[0])
        problem = next(iter(setup.task.problems()))
        result = strategy.solve(problem.prompt)
    assert len(result.candidates) == 2 and all(offer.value is not None for offer in result.candidates)


def test_a_model_that_was_trained_as_a_judge_is_asked_as_its_configuration_says(tmp_path: Path) -> None:
    source = sources.resolve("tiny-0.1m")
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    words = {
        "template": "{task}{candidate}C:\n",
        "labels": {"R": 1.0, "W": 0.0},
        "cue": "V:",
        "join": "",
        "chat": False,
    }
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "metagen": {"kind": "judge", **words}}), "utf-8"
    )
    with TorchEngine(tmp_path) as engine:
        question = Judge(engine).respondent.question
        assert (question.template, question.cue) == (words["template"], "V:")
        assert dict(question.labels) == words["labels"]
        assert (
            Judge(engine, cue="X:", chat=False, template="{task}{candidate}").respondent.question.cue == "X:"
        )
