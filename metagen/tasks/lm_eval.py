"""Tasks of lm-eval, the Language Model Evaluation Harness (Gao et al. 2024), graded as lm-eval grades them."""

from __future__ import annotations

import io
import json
import random
import re
import string
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from metagen import trust
from metagen.errors import DataError, InputError, UnsupportedError, lacks
from metagen.sequence import Form, Message, Prompt, Sequence, digest
from metagen.tasks.base import Problem, Task
from metagen.values import Amount, Count, Text
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.rules import Rule, answer_rule
from metagen.verifiers.text import LONGEST

#: The seeds of Python and of NumPy with which lm-eval loads tasks.
SEEDS: Final = (0, 1234)
GENERATE: Final = "generate_until"
LIKELIHOODS: Final = (
    "it compares likelihoods of given texts, which a strategy has none of; choose a task of the type generate_until "
    "(many have generative or cot in their names), or evaluate the model by lm-eval's own model hf"
)


class LMEvalTask(Task):
    """A task of lm-eval that generates: its documents, prompts, filter and metric are lm-eval's own.

    task: its name in lm-eval. include_path: a directory of YAML files, one of which defines the task. Without it the
    task is one of lm-eval's own, and each process looks for it for some ten seconds. num_fewshot: worked examples in a
    prompt, by default as many as the task says. seed: of the draw of examples. filter: the filter that reads
    completions; needed where the task has several. metric: the metric that grades; needed where there are several.
    form: `text`, or turns as of a Prompt, which lm-eval's `apply_chat_template` sends. system: a text before each
    prompt. answer: the rule by which votes compare answers; by default the texts that the filter finds. delimiter: the
    end of a step of a solution. mark: text within the step that holds the answer. limit: the first problems only.

    Completions are cut at the task's `until` before they are read. The rest of its `generation_kwargs` belongs to the
    generator. Raises UnsupportedError for tasks that need likelihoods, run code, show images, or sample several times,
    and for metrics that are no mean over problems. Raises DataError where lm-eval cannot load the task.
    """

    def __init__(
        self,
        task: Text,
        *,
        include_path: str | None = None,
        num_fewshot: Amount | None = None,
        seed: int = 1234,
        filter: Text | None = None,
        metric: Text | None = None,
        form: Form = "text",
        system: Text | None = None,
        answer: Rule | None = None,
        delimiter: Text = "\n",
        mark: Text | None = None,
        limit: Count | None = None,
    ) -> None:
        self.name, self.delimiter, self.mark = task, delimiter, mark
        with _seeds():
            found = _load(task, include_path)
            instances = _build(found, num_fewshot, seed, limit, form != "text", system)
        self._measure = Measure.of(found, filter, metric)
        #: Stop strings, for generators. Text behind the first of them is never read.
        self.stop = self._measure.until
        self._documents = {f"{task}/{one.doc_id}": one.doc for one in instances}
        pairs = zip(self._documents, instances, strict=True)
        self._problems = [Problem(_prompt(name, one, form), _target(found, one.doc)) for name, one in pairs]
        own = FilterRule(self._measure, self._documents)
        self._answer = own if answer is None else answer_rule(answer)

    @property
    def answer(self) -> AnswerRule:
        return self._answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """The value of the metric for each completion, as lm-eval computes it."""
        document = self._documents[problem.id]
        return [self._measure.value(s.text, document) for s in sequences]


@dataclass(frozen=True, slots=True)
class Measure:
    """One filter and one metric of a task of lm-eval. until: a completion ends where one of these texts begins."""

    task: Any
    filter: Any
    metric: str
    until: tuple[str, ...]

    @classmethod
    def of(cls, task: Any, filter: str | None, metric: str | None) -> Measure:
        """The filter and the metric with these names; None where there is one only. Raises InputError."""
        filters = {one.name: one for one in task._filters}
        chosen = filters[_choose("filter", filter, filters, task.config.task)]
        name = _choose("metric", metric, task.aggregation(), task.config.task)
        _check_metric(task, name)
        until = (task.config.generation_kwargs or {}).get("until") or ()
        return cls(task, chosen, name, (until,) if isinstance(until, str) else tuple(until))

    def read(self, text: str, document: Mapping[str, Any]) -> Any:
        """What the filter finds in a completion of the prompt of a document."""
        from lm_eval.api.instance import Instance

        end = min((at for stop in self.until if stop and (at := text.find(stop)) >= 0), default=len(text))
        one = Instance(GENERATE, doc=document, arguments=(), idx=0, resps=[text[:end]])
        self.filter.apply([one])
        return one.filtered_resps[self.filter.name]

    def value(self, text: str, document: Mapping[str, Any]) -> float:
        """The metric of a completion. Raises UnsupportedError for a value that is no number."""
        values = self.task.process_results(document, [self.read(text, document)])
        try:
            return float(values[self.metric])
        except (KeyError, TypeError, ValueError):
            raise UnsupportedError(
                f"metric={self.metric!r} of lm-eval's task {self.task.config.task!r} gives no number for one "
                f"completion; it computes {_short(values)}"
            ) from None

    def normal(self, text: str) -> str:
        """An answer in the form in which `exact_match` compares answers, if that is the metric; else as it is."""
        given = self.task.config
        if self.metric != "exact_match" or given.process_results is not None:
            return text
        listed = (one for one in given.metric_list or () if one["metric"] == self.metric)
        options: Mapping[str, Any] = next(listed, {})
        for pattern in options.get("regexes_to_ignore") or ():
            text = re.sub(pattern, "", text)
        text = text.lower() if options.get("ignore_case") else text
        dropped = string.punctuation if options.get("ignore_punctuation") else ""
        dropped += string.digits if options.get("ignore_numbers") else ""
        return text.translate(str.maketrans("", "", dropped))

    @property
    def invalid(self) -> frozenset[str]:
        """Texts that stand for an answer where the filter finds none."""
        fallbacks = (getattr(make(), "fallback", None) for make in self.filter.filters)
        return frozenset(text for text in fallbacks if isinstance(text, str))

    @property
    def fingerprint(self) -> str:
        """Names the task, the filter and the metric as they are written, and the version of lm-eval."""
        given = self.task.config
        written = [
            given.task,
            self.filter.name,
            given.filter_list,
            self.metric,
            given.metric_list,
            self.until,
        ]
        return digest("lm-eval", version("lm_eval"), json.dumps(written, default=_name)).hex()


class FilterRule(AnswerRule):
    """Answers as a filter of lm-eval finds them: equal if they are written alike, as `exact_match` compares texts.

    Verdict: `missing` where the filter finds nothing.
    """

    def __init__(self, measure: Measure, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._measure, self._documents, self._invalid = measure, documents, measure.invalid

    @property
    def fingerprint(self) -> str:
        return self._measure.fingerprint

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return list(map(self._read, sequences))

    async def key(self, answer: str) -> str | None:
        return self._key(answer)

    def _read(self, sequence: Sequence) -> Answer:
        document = self._documents.get(sequence.prompt.problem_id, {})
        found = self._measure.read(sequence.text, document)
        if isinstance(found, list | tuple) and len(found) == 1:
            (found,) = found
        text = "" if found is None else str(found)
        key = None if text in self._invalid else self._key(text)
        return Answer(verdict="missing") if key is None else Answer(text, key)

    def _key(self, answer: str) -> str | None:
        text = self._measure.normal(answer)
        return f"text {digest(text).hex()}" if len(text) > LONGEST else text or None


@contextmanager
def _seeds() -> Iterator[None]:
    """The random numbers that tasks draw while lm-eval loads them; those of the program go on afterwards."""
    before, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - what lm-eval seeds
    random.seed(SEEDS[0])
    np.random.seed(SEEDS[1])  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numbers)  # noqa: NPY002


def _load(name: str, include_path: str | None) -> Any:
    """The task of this name. Raises InputError for what is no task, and as LMEvalTask does."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise InputError(
            f"a task of lm-eval needs {lacks(error)}; pip install 'lm-eval>=0.4.13' beside metagen"
        ) from None
    if include_path is not None:
        if not Path(include_path).is_dir():
            raise InputError(f"include_path={include_path!r} is no directory; expected one with YAML files")
        trust.folder(Path(include_path), f"include_path={include_path!r}")
    manager = TaskManager(include_path=include_path, include_defaults=include_path is None)
    entry = manager.task_index.get(name)
    if entry is None:
        near = get_close_matches(name, manager.all_tasks, n=3) or manager.all_tasks[:20]
        where = "lm-eval has no task of this name" if include_path is None else f"not in {include_path!r}"
        raise InputError(f"task={name!r}: {where}; there is {', '.join(near) or 'none'}")
    if name not in manager.all_subtasks:
        members = _short((entry.cfg or {}).get("task") or sorted(entry.tags))
        raise InputError(f"task={name!r} is several tasks of lm-eval, {members}; name one of these")
    _check(name, entry.cfg or {})
    try:
        (task,) = manager.load(name)["tasks"].values()
    except Exception as error:  # of a task, or of the data set that it loads
        raise DataError(
            f"lm-eval cannot load its task {name!r} ({type(error).__name__}: {str(error)[:300]}); look at its file, "
            "and at its data set, which must be on this machine or within reach"
        ) from error
    _check(name, {"output_type": task.OUTPUT_TYPE, "repeats": task.config.repeats}, task)
    return task


def _check(name: str, given: Mapping[str, Any], task: Any = None) -> None:
    """UnsupportedError for a task that a strategy cannot answer. given: what is known of its configuration."""
    reason = None
    if given.get("output_type", GENERATE) != GENERATE:
        reason = LIKELIHOODS
    elif given.get("unsafe_code") or getattr(task, "UNSAFE_CODE", False):
        reason = "it runs code outside of a sandbox; task kinds such as humaneval and mbpp have one"
    elif given.get("doc_to_image") or given.get("doc_to_audio") or getattr(task, "MULTIMODAL", False):
        reason = "it shows images or sound, and metagen sends text only"
    elif given.get("repeats", 1) > 1:
        reason = (
            f"it samples each problem {given['repeats']} times, and a strategy gives one answer; include its file in "
            "one of your own that says repeats: 1, and let a strategy vote"
        )
    if reason is not None:
        raise UnsupportedError(f"task={name!r}: {reason}")


def _check_metric(task: Any, metric: str) -> None:
    """UnsupportedError for a metric whose mean over problems means something else than in lm-eval, or nothing."""
    from lm_eval.api.metrics import mean

    name = task.config.task
    if task.aggregation()[metric] is not mean:
        raise UnsupportedError(
            f"metric={metric!r} of lm-eval's task {name!r} is computed over all problems at once; expected a metric "
            f"that is a mean over problems, of {', '.join(task.aggregation())}"
        )
    if not task.higher_is_better().get(metric, True):
        raise UnsupportedError(
            f"metric={metric!r} of lm-eval's task {name!r} is better where it is lower; expected one of accuracy"
        )


def _build(
    task: Any, shots: int | None, seed: int, limit: int | None, chat: bool, system: str | None
) -> list[Any]:
    """One request for each problem, with its document and its prompt, made as `lm_eval.simple_evaluate` does it."""
    said = task.get_config("num_fewshot")
    if shots is not None and said == 0 and shots > 0:
        raise InputError(
            f"num_fewshot={shots!r}: lm-eval's task {task.config.task!r} says num_fewshot: 0, and lm-eval keeps to "
            "that; leave it out"
        )
    task.set_config(key="num_fewshot", value=(said or 0) if shots is None else shots)
    task.set_fewshot_seed(seed=seed)
    try:
        with redirect_stderr(io.StringIO()):  # its progress bar
            task.build_all_requests(
                limit=limit,
                system_instruction=system,
                apply_chat_template=chat,
                fewshot_as_multiturn=chat,
                chat_template=_turns if chat else None,
            )
    except Exception as error:  # of functions and templates that the task brings
        raise DataError(
            f"lm-eval cannot make the prompts of its task {task.config.task!r} ({type(error).__name__}: "
            f"{str(error)[:300]}); look at its file"
        ) from error
    return list(task.instances)


def _turns(turns: list[dict[str, str]], add_generation_prompt: bool) -> list[dict[str, str]]:
    """In place of a chat template, which is the engine's affair: the turns."""
    return turns


def _prompt(name: str, instance: Any, form: Form) -> Prompt:
    asked = instance.args[0]
    if isinstance(asked, str):
        return Prompt(name, text=asked, form="text")
    return Prompt(name, messages=tuple(Message(turn["role"], turn["content"]) for turn in asked), form=form)


def _target(task: Any, document: Mapping[str, Any]) -> str:
    """The right answer, for people and for digests; several of them as JSON."""
    target = task.doc_to_target(document)
    if isinstance(target, int) and task.config.doc_to_choice is not None:
        target = task.doc_to_choice(document)[target]
    return json.dumps(target, ensure_ascii=False) if isinstance(target, list) else str(target)


def _choose(what: str, wanted: str | None, known: Iterable[str], task: str) -> str:
    names = list(known)
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted not in names:
        said = f"needs {what}" if wanted is None else f"has no {what} {wanted!r}"
        raise InputError(f"lm-eval's task {task!r} {said}; expected one of {', '.join(names)}")
    return wanted


def _name(thing: object) -> str:
    return str(getattr(thing, "__qualname__", thing))


def _short(things: object) -> str:
    text = ", ".join(map(str, things)) if isinstance(things, list) else str(things)
    return text if len(text) <= 200 else f"{text[:200]}…"
