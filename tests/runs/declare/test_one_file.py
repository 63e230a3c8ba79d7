"""A strategy of one's own is one file: Python, experiment files and their errors read what it is off its fields."""

from __future__ import annotations

from pathlib import Path

import pytest

import metagen as mg
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.strategies.aggregators import Majority
from metagen.testing import run

TOY = Path(__file__).parents[1] / "toy"
OWN = '''\
"""Draws until a sample is long enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Literal

import metagen as mg
from metagen.parts import part
from metagen.values import Count, Share


@part
class Patient(mg.Strategy):
    """The first of at most n samples of `least` characters, by a measure; the best of them by a verifier, if any."""

    generator: mg.Generator = field(kw_only=False)
    n: Count = field(default=4, kw_only=False)
    least: Count = 2
    share: Share = 0.5
    by: Literal["characters", "words"] = "characters"
    verifier: mg.Verifier | None = None
    measure: Callable[[str], int] = len

    async def run(self, prefix: mg.Sequence, until: mg.Until, scope: mg.Scope) -> mg.Sequence:
        drawn = await self.generator.generate(prefix, n=self.n, scope=scope.child("sample"))
        return next((one for one in drawn if self.measure(one.text) >= self.least), drawn[0])


def lines(text: str) -> int:
    return text.count("\\n") + 1
'''
YAML = """\
name: patience
task: {kind: "metagen_toy:ToyTask", count: 3}
generators:
  small: {kind: "metagen_toy:generator", skill: 0.5}
verifiers:
  judge: {kind: "metagen_toy:verifier"}
strategies:
  patient: {kind: "patient_file:Patient"}
grid: {n: [2]}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "patient_file.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "patience.yaml").write_text(YAML)
    return tmp_path / "patience.yaml"


def made(file: Path, options: str = "") -> mg.Strategy:
    sets = [f"strategies.patient={{kind: 'patient_file:Patient', {options}}}"]
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        (cell,) = setup.configurations
        return setup.strategy(cell)


def test_its_fields_are_fields_of_the_file(file: Path) -> None:
    plain = made(file)
    assert {name: getattr(plain, name) for name in ("n", "least", "share", "by")} == {
        "n": 2, "least": 2, "share": 0.5, "by": "characters",
    }  # fmt: skip
    told = made(file, "least: 1, by: words, verifier: judge, measure: patient_file:lines")
    assert told.verifier.name == "judge" and told.measure("a\nb") == 2 and told.by == "words"  # type: ignore[attr-defined]
    assert told.fingerprint != plain.fingerprint == made(file).fingerprint
    assert (
        repr(told).startswith("Patient(generator=")
        and "by='words'" in repr(told)
        and "share" not in repr(told)
    )


def test_it_runs_and_is_dumped_with_its_defaults(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    assert "least: 2" in schema.dump(experiment) and "by: characters" in schema.dump(experiment)
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(experiment) as setup:
        runner.run(setup, directory)
    assert [line.strategy for line in directory.final_state().lines] == ["patient"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("least: 0", r"least = 0: expected an integer ≥ 1"),
        ("leas: 1", r"leas = 1: no such field; expected one of .*least.*; did you mean 'least'\?"),
        ("by: word", r"by = 'word': expected one of characters, words; did you mean 'words'\?"),
        ("share: 1.5", r"share = 1\.5: expected a number in \[0, 1\]"),
        ("verifier: judg", r"verifier = 'judg': expected one of the verifiers judge; did you mean 'judge'\?"),
        ("measure: 3", r"measure = 3: expected a function, as package\.module:function"),
    ],
)
def test_its_faults_have_their_places(file: Path, options: str, fault: str) -> None:
    with pytest.raises(mg.ConfigError, match=rf"strategies\.patient\.{fault}"):
        made(file, options)


def test_python_says_the_same(file: Path) -> None:
    from patient_file import Patient  # type: ignore[import-not-found]  # written above

    generator = mg.FunctionGenerator(lambda prefix, seed, index: "a", name="a")
    for options, fault in (
        ({"least": 0}, "Patient: least=0; expected an integer ≥ 1"),
        ({"by": "word"}, "Patient: by='word'; expected one of characters, words; did you mean 'words'"),
        ({"leest": 1}, "did you mean 'least'"),
        ({"verifier": "judge"}, "Patient: verifier='judge'; expected a Verifier"),
    ):
        with pytest.raises(mg.InputError, match=fault):
            Patient(generator, **options)
    assert Patient(generator, 3).solve("x").text == "a"


TOOLS = '''\
from pydantic import BaseModel


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def words(query: str) -> str:
    return f"about {query}"


def ballot(text: str) -> list[str]:
    return text.split()[-2:]


class Sum(BaseModel):
    value: int
'''
COMPOSED = [
    "{kind: search_predict, search: 'tools_file:words'}",
    "{kind: tool_use, tools: ['tools_file:add', 'tools_file:words'], most: 2}",
    "{kind: interleaved, tool: 'tools_file:words', call: 'step (?P<query>[0-9]+)'}",
    "{kind: typed, model: 'tools_file:Sum', tries: 2}",
    "{kind: ranked, ballot: 'tools_file:ballot', rule: instant-runoff, n: 2}",
    "{kind: pessimistic_best_of_n, verifiers: [judge, stern], n: 2}",
    "{kind: draft_sketch_fill, verifier: judge, tries: 1}",
    "{kind: program_of_thought}",
    "{kind: system_two_attention}",
    "{kind: chain, output: answer, steps: {plan: {kind: ask, template: '{prompt}'}, "
    "looked_up: {kind: use, tool: 'tools_file:words', given: {query: '{plan}'}}, "
    "answer: {kind: ask, template: '{looked_up}{prompt}', generator: other}, "
    "judged: {kind: verify, verifier: judge, of: answer}}}",
]


@pytest.mark.parametrize("spec", COMPOSED, ids=lambda spec: spec.split()[1].strip(",}"))
def test_what_python_composes_a_file_does(file: Path, tmp_path: Path, spec: str) -> None:
    (tmp_path / "tools_file.py").write_text(TOOLS)
    sets = [
        f"strategies.patient={spec}",
        "generators.other={kind: 'metagen_toy:generator', skill: 0.9, name: other}",
        "verifiers.stern={kind: 'metagen_toy:verifier', quality: 0.9, name: stern}",
        "grid.generators=[small]",
    ]
    experiment = schema.load(file, sets=sets)
    assert schema.load(_dumped(experiment, tmp_path)) == experiment
    with build.open_setup(experiment) as setup:
        (cell,) = setup.configurations
        strategy = setup.strategy(cell)
        assert strategy.fingerprint == setup.strategy(cell).fingerprint
        directory = RunDirectory.at(tmp_path / "run")
        if "program_of_thought" not in spec:
            runner.run(setup, directory)
            assert directory.final_state().lines


def test_what_a_generator_cannot_do_is_said_where_it_is_asked_for(file: Path, tmp_path: Path) -> None:
    (tmp_path / "tools_file.py").write_text(TOOLS)
    sets = ["strategies.patient={kind: self_ask, search: 'tools_file:words', most: 2}"]
    with (
        pytest.raises(
            mg.UnsupportedError, match=r"strategies\.patient: FunctionGenerator has no sampling parameters"
        ),
        build.open_setup(schema.load(file, sets=sets)),
    ):
        pass


def _dumped(experiment: schema.Experiment, place: Path) -> Path:
    dumped = place / "dumped.yaml"
    dumped.write_text(schema.dump(experiment))
    return dumped


def test_faults_within_a_chain_have_their_places(file: Path) -> None:
    steps = "{a: {kind: ask, tmplate: x}, b: {kind: aks}, c: {kind: verify, verifier: nobody, of: a}}"
    with pytest.raises(mg.ConfigError) as caught:
        schema.load(file, sets=[f"strategies.patient={{kind: chain, steps: {steps}}}"])
    said = str(caught.value)
    assert "strategies.patient.steps.a.template: missing; expected a text" in said
    assert "tmplate = 'x': no such field; expected one of" in said and "did you mean 'template'" in said
    assert "steps.b.kind = 'aks': expected one of ask, continue, use, verify; did you mean 'ask'?" in said
    assert "steps.c.verifier = 'nobody': expected one of the verifiers judge" in said


PARTS = '''\
"""A task, and a verifier of its answers."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

import metagen as mg
from metagen.parts import part
from metagen.tasks.base import Problem, Task
from metagen.values import Count, Share


@part
class Doubling(Task):
    """Twice a number."""

    count: Count
    style: Literal["plain", "polite"] = "plain"

    name = "doubling"
    delimiter = "\\n"
    answer = mg.NumberRule()

    def problems(self) -> Iterator[Problem]:
        for i in range(self.count):
            yield Problem(mg.Prompt(f"twice-{i}", text=f"{i}+{i}=?\\n"), str(2 * i), 1)


@part
class Brevity(mg.Verifier):
    """The shorter the better, down to `least` characters."""

    least: Count = 1
    floor: Share = 0.0
    name: str = "brevity"

    async def score(self, sequences: abc.Sequence[mg.Sequence], *, scope: mg.Scope) -> list[mg.Score]:
        return [mg.Score(max(self.floor, min(1.0, self.least / max(1, len(s.text))))) for s in sequences]
'''


def test_a_task_and_a_verifier_are_one_file_too(file: Path, tmp_path: Path) -> None:
    (tmp_path / "parts_file.py").write_text(PARTS)
    file.write_text(
        "name: brief\n"
        "task: {kind: 'parts_file:Doubling', count: 3}\n"
        "generators: {small: {kind: 'metagen_toy:generator', skill: 0.5}}\n"
        "verifiers: {short: {kind: 'parts_file:Brevity', least: 4}}\n"
        "strategies: {best: {kind: best_of_n, verifier: short}}\n"
        "grid: {n: [2]}\n"
    )
    experiment = schema.load(file)
    assert "style: plain" in schema.dump(experiment) and "floor: 0.0" in schema.dump(experiment)
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(experiment) as setup:
        (judge,) = setup.verifiers.values()
        assert (judge.name, judge.least, repr(judge)) == ("short", 4, "Brevity(least=4, name='short')")  # type: ignore[attr-defined]
        runner.run(setup, directory)
    assert directory.final_state().lines
    for change, fault in (
        ("task.style=rude", r"task\.style = 'rude': expected one of plain, polite"),
        ("task.count=none", r"task\.count = 'none': expected an integer ≥ 1"),
        ("verifiers.short.floor=2", r"verifiers\.short\.floor = 2: expected a number in \[0, 1\]"),
        ("verifiers.short.leest=2", r"verifiers\.short\.leest = 2: no such field.*did you mean 'least'\?"),
    ):
        with pytest.raises(mg.ConfigError, match=fault):
            schema.load(file, sets=[change])


ODD = '''\
class Odd:
    """Fields that a definition cannot have, or that only it understands."""


def odd(*, tags: tuple[str, ...] = (), price: "Odd | None" = None, weights: dict[str, float] | None = None):
    from metagen.verifiers.function import FunctionVerifier

    said = f"{tags} {price} {weights}"
    return FunctionVerifier(lambda sequence: 0.5, name=said)


def shadowed(*, options: int = 1, kindly: int = 2):
    return odd(tags=(str(options), str(kindly)))
'''


def test_what_a_definition_cannot_type_is_left_to_its_class(file: Path, tmp_path: Path) -> None:
    (tmp_path / "odd_file.py").write_text(ODD)

    def name(definition: str) -> str:
        best = "strategies.patient={kind: best_of_n, verifier: judge}"
        experiment = schema.load(file, sets=[f"verifiers.judge={definition}", best])
        again = schema.load(_dumped(experiment, tmp_path))
        assert again == experiment
        with build.open_setup(again) as setup:
            return setup.verifiers["judge"].name

    assert name("{kind: 'odd_file:odd'}") == "() None None"
    assert name("{kind: 'odd_file:odd', tags: [a], price: {prompt: 1}, weights: {x: 2}}") == (
        "('a',) {'prompt': 1} {'x': 2.0}"
    )
    assert name("{kind: 'odd_file:shadowed', options: 3}") == "('3', '2') None None"


ADAPTER = '''\
"""A sampling adapter."""

from __future__ import annotations

from typing import Literal

import torch

from metagen.generators.decoding.adapters import Adapter
from metagen.parts import part
from metagen.values import Share


@part
class Fresh(Adapter):
    """Tokens that the completion, or the whole text, has already are less likely by `share`; 1 forbids them."""

    share: Share = 1.0
    of: Literal["completion", "text"] = "completion"

    def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1])[None]
        row, at = ((ids >= 0) & ((places >= start[:, None]) | (self.of == "text"))).nonzero(as_tuple=True)
        seen = torch.zeros_like(logits, dtype=torch.bool)
        seen[row, ids[row, at]] = True
        return torch.where(seen, logits + torch.log(torch.tensor(1.0 - self.share)), logits)


class Broken(Adapter):
    def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return logits[:, :2]
'''
DRAWN = """\
name: fresh
task: {kind: "metagen_toy:ToyTask", count: 2}
engines: {small: {kind: torch, model: tiny-0.1m, threads: 1, device: cpu}}
generators: {plain: {engine: small, max_tokens: 8, adapters: [{kind: "fresh_file:Fresh"}]}}
strategies: {draws: {kind: sample}}
grid: {n: [2]}
"""


@pytest.fixture
def fresh(file: Path, tmp_path: Path) -> Path:
    (tmp_path / "fresh_file.py").write_text(ADAPTER)
    file.write_text(DRAWN)
    return file


def _draw(generator: mg.Generator) -> list[tuple[int, ...]]:
    async def ask(scope: mg.Scope) -> list[mg.Sequence]:
        return await generator.generate(mg.Sequence.of("Q:a=12+7;b=a*3;b?\nS:\n"), n=8, scope=scope)

    return [one.tokens.ids for one in run(ask)[0] if one.tokens is not None]


def test_an_adapter_is_one_file_too(fresh: Path, tmp_path: Path) -> None:
    experiment = schema.load(fresh)
    assert "of: completion" in schema.dump(experiment)
    assert schema.load(_dumped(experiment, tmp_path)) == experiment
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(experiment) as setup:
        runner.run(setup, directory)
        assert directory.final_state().lines
        made = setup.generators["plain"]
        engine = made.engine  # type: ignore[attr-defined]
        for temperature in (0.0, 1.0):
            drawn = _draw(made.replace(temperature=temperature))
            assert len(drawn) == 8 and all(len(set(ids)) == len(ids) for ids in drawn), "none comes twice"
            free = _draw(engine.generator(max_tokens=8, temperature=temperature))
            assert any(len(set(ids)) < len(ids) for ids in free)
        plain = engine.generator(max_tokens=8)
        assert made.replace(adapters=()).fingerprint == plain.fingerprint != made.fingerprint


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("[{kind: 'fresh_file:Fresh', share: 2}]", r"\.0\.share = 2: expected a number in \[0, 1\]"),
        ("[{kind: 'fresh_file:Fresh', shar: 1}]", r"\.0\.shar = 1: no such field.*did you mean 'share'\?"),
        ("[{kind: fresh}]", r"\.0\.kind = 'fresh'"),
        ("3", r" = 3"),
    ],
)
def test_faults_of_an_adapter_have_their_places(fresh: Path, change: str, fault: str) -> None:
    with pytest.raises(mg.ConfigError, match=rf"generators\.plain\.adapters{fault}"):
        schema.load(fresh, sets=[f"generators.plain.adapters={change}"])
    fresh.write_text(DRAWN.replace("fresh_file:Fresh", "fresh_file:Frsh"))
    with pytest.raises(
        mg.ConfigError, match=r"yaml:4: generators\.plain = .*cannot import 'fresh_file:Frsh'"
    ):
        schema.load(fresh)


def test_an_engine_that_runs_no_adapters_of_others_refuses_them(fresh: Path) -> None:
    server = "engines.small={kind: openai, model: m, base_url: 'http://localhost:1/v1', dialect: vllm}"
    with (
        pytest.raises(mg.UnsupportedError, match=r"generators\.plain: .*adapters.*Fresh.*TorchEngine"),
        build.open_setup(schema.load(fresh, sets=[server])),
    ):
        pass


def test_an_adapter_that_breaks_its_promise_is_named(fresh: Path) -> None:
    from fresh_file import Broken  # type: ignore[import-not-found]  # written above

    with (
        mg.TorchEngine("tiny-0.1m", threads=1, device="cpu") as engine,
        pytest.raises(mg.MetagenError, match=r"Broken\.adapt .*expected a tensor of the shape of logits"),
    ):
        _draw(engine.generator(max_tokens=4, adapters=(Broken(),)))


CHOOSING = '''\
"""An answer rule, a utility, an aggregator and a step of a chain."""

from __future__ import annotations

from collections import abc

import numpy as np

import metagen as mg
from metagen.parts import part
from metagen.strategies.aggregate import Selection
from metagen.strategies.chain.steps import ChainStep, Output
from metagen.values import Count, Positive, Text
from metagen.verifiers.utility.base import Utility


@part
class LastWord(mg.AnswerRule):
    """The last word. fold: upper and lower case are the same."""

    fold: bool = True

    async def read(self, sequences: abc.Sequence[mg.Sequence]) -> list[mg.Answer]:
        words = [one.text.split()[-1:] for one in sequences]
        return [mg.Answer(one[0], await self.key(one[0])) if one else mg.Answer() for one in words]

    async def key(self, answer: str) -> str | None:
        return answer.casefold() if self.fold else answer


@part
class SameLength(Utility):
    """How near two texts are in length. scale: what halves it."""

    scale: Positive = 1.0
    symmetric = True
    spends = False

    async def matrix(self, candidates, references=None, *, scope):
        own, others = ([len(one.text) for one in of] for of in (candidates, references or candidates))
        return 1 / (1 + abs(np.subtract.outer(own, others)) / self.scale)


@part
class First(mg.Aggregator):
    """The first text of the alphabet. last: the last one."""

    last: bool = False
    groups = False

    async def choose(self, pool, salt, scope):
        order = sorted(range(len(pool)), key=lambda i: pool[i].sequence.text, reverse=self.last)
        return Selection(order[0], {})


@part
class Shout(ChainStep):
    """What another step has written, louder. of: the step."""

    of: Text
    times: Count = 1

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.of,)

    async def perform(self, inputs, scope):
        return Output(inputs.texts[self.of].upper() + "!" * self.times)
'''
CHOSEN = (
    ("{kind: majority, answer: {kind: 'choosing_file:LastWord', fold: false}, n: 2}", "answer.fold", "true or false"),
    ("{kind: mbr, utility: {kind: 'choosing_file:SameLength', scale: 2}, n: 2}", "utility.scale", "a number > 0"),
    (
        "{kind: parallel, aggregator: {kind: 'choosing_file:First', last: true}, n: 2}", "aggregator.last",
        "true or false",
    ),
    (
        "{kind: chain, output: b, steps: {a: {kind: ask, template: '{prompt}'}, "
        "b: {kind: 'choosing_file:Shout', of: a, times: 2}}}", "steps.b.times", "an integer ≥ 1",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "expected"), CHOSEN, ids=[field for _, field, _ in CHOSEN])
def test_what_chooses_is_one_file_too(
    file: Path, tmp_path: Path, spec: str, field: str, expected: str
) -> None:
    (tmp_path / "choosing_file.py").write_text(CHOOSING)
    sets = [f"strategies.patient={spec}"]
    experiment = schema.load(file, sets=sets)
    assert schema.load(_dumped(experiment, tmp_path)) == experiment
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(experiment) as setup:
        runner.run(setup, directory)
    assert directory.final_state().failures == ()
    for name, fault in (
        (field, rf" = \[\]: expected {expected}"),
        (f"{field}s", r" = \[\]: no such field; expected"),
    ):
        with pytest.raises(mg.ConfigError, match=rf"strategies\.patient\.{name}{fault}"):
            schema.load(file, sets=[*sets, f"strategies.patient.{name}=[]"])


RULES = '''\
"""A stopping rule, and one that takes whatever it is given."""

from __future__ import annotations

import numpy as np

from metagen.parts import part
from metagen.strategies.adaptive.stopping import StoppingRule
from metagen.values import Count


@part
class Enough(StoppingRule):
    """Stops after so many samples. least: samples."""

    least: Count = 3

    def stops(self, classes, weights):
        return np.full(len(classes), classes.shape[1] >= self.least)


def enough(**options) -> StoppingRule:
    return Enough(**options)
'''
STOPPED = (
    ("{kind: 'rules_file:Enough', least: 3}", 3),
    ("{kind: 'rules_file:enough', least: 3}", 3),
    ("{kind: any_of, rules: [{kind: 'rules_file:Enough'}, {kind: unanimous, size: 1}]}", 1),
    ("{kind: all_of, rules: [{kind: 'rules_file:Enough'}, {kind: decided}]}", 5),
)


@pytest.mark.parametrize(("rule", "drawn"), STOPPED, ids=[rule for rule, _ in STOPPED])
def test_a_stopping_rule_is_one_file_too(file: Path, tmp_path: Path, rule: str, drawn: int) -> None:
    (tmp_path / "rules_file.py").write_text(RULES)
    vote = "{kind: adaptive, aggregator: {kind: majority}, n: 5, rule: " + rule + "}"
    experiment = schema.load(file, sets=[f"strategies.patient={vote}"])
    assert schema.load(_dumped(experiment, tmp_path)) == experiment
    with build.open_setup(experiment) as setup:
        (cell,) = setup.configurations
        strategy = setup.strategy(cell)
        # Another answer each time: nothing is decided before the end.
        texts = mg.FunctionGenerator(lambda prefix, seed, index: f"A:{index}", name="counts")
        own = mg.Adaptive(texts, 5, aggregator=Majority(setup.task.answer), rule=strategy.rule)  # type: ignore[attr-defined]
        assert len(own.solve("x").candidates) == drawn


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("{kind: any_of, rules: []}", r"\.rule\.rules = \[\]: expected at least one$"),
        (
            "{kind: all_of, rules: [{kind: bta}]}",
            r"\.rule\.rules\.0\.kind = 'bta': .*; did you mean 'beta'\?$",
        ),
        ("{kind: 'no_such_file:Rule'}", r": cannot import 'no_such_file:Rule' \(No module named"),
    ],
)
def test_faults_of_a_stopping_rule_have_their_places(file: Path, rule: str, fault: str) -> None:
    vote = "{kind: adaptive, aggregator: {kind: majority}, rule: " + rule + "}"
    with (
        pytest.raises(mg.ConfigError, match=rf"strategies\.patient{fault}"),
        build.open_setup(schema.load(file, sets=[f"strategies.patient={vote}"])),
    ):
        pass


def test_a_function_that_is_not_there(file: Path) -> None:
    for option, said in (
        (
            "measure: 'patient_file:nothing'",
            r"measure: cannot import 'patient_file:nothing' \(module 'patient_file' has",
        ),
        (
            "measure: 'no_such_file:nothing'",
            r"measure: cannot import 'no_such_file:nothing' \(No module named",
        ),
    ):
        with pytest.raises(mg.ConfigError, match=rf"strategies\.patient: {said}.*; expected package"):
            made(file, option)


def test_a_fault_of_a_part_has_the_line_of_its_class(file: Path) -> None:
    text = OWN.replace("    async def run(", "    async def ran(")
    (file.parent / "unable_file.py").write_text(text)
    line = text[: text.index("@part")].count("\n") + 1
    where = rf"unable_file\.py:({line}|{line + 1})\) raised TypeError: Can't instantiate"
    sets = ["strategies.patient={kind: 'unable_file:Patient'}"]
    with (
        pytest.raises(mg.PluginError, match=where),
        build.open_setup(schema.load(file, sets=sets)),
    ):
        pass
