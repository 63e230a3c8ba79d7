"""Tasks of lighteval (Habib et al. 2023), graded as lighteval grades them."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections import abc
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from metagen import trust
from metagen.apart import Apart
from metagen.errors import DataError, InputError, MetagenError, PluginError, UnsupportedError
from metagen.sequence import Form, Message, Prompt, Sequence, digest
from metagen.tasks.base import Problem, Task
from metagen.values import Amount, Count, Text
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import Rule, answer_rule

#: Where lighteval has its own tasks.
OWN: Final = "lighteval.tasks.tasks"
#: What lighteval's pipeline removes before it grades, and the seed with which it begins.
TAGS: Final = [("<think>", "</think>")]
SEED: Final = 1234
#: Modules of lighteval whose metrics run code.
RUN_CODE: Final = ("lcb", "slr_bench")


class LightevalTask(Task):
    """A task of lighteval that generates: its documents, prompts and metric are lighteval's own.

    task: its name in lighteval. custom_tasks: a Python file with a TASKS_TABLE that has it. module: the module below
    lighteval.tasks.tasks that has it, by default the one with the task's name up to a colon. num_fewshot: worked
    examples in a prompt. metric: the metric that grades; needed where there are several. form: `text`, or turns as of
    a Prompt. system: a text before each prompt. answer: the rule by which votes compare answers. delimiter: the end of
    a step of a solution. mark: text within the step that holds the answer. limit: the first problems only, in
    lighteval's order.

    Where prompts are texts, completions are cut at the task's stop sequences before they are graded. Raises
    UnsupportedError for tasks that need likelihoods, images or several samples of a problem, and for metrics that run
    code, ask a judge, or are no mean over problems. Raises DataError where lighteval cannot load the task. Raises
    InputError where lighteval is not installed.
    """

    def __init__(
        self,
        task: Text,
        *,
        custom_tasks: str | None = None,
        module: Text | None = None,
        num_fewshot: Amount = 0,
        metric: Text | None = None,
        form: Form = "text",
        system: Text | None = None,
        answer: Rule = "number",
        delimiter: Text = "\n",
        mark: Text | None = None,
        limit: Count | None = None,
    ) -> None:
        self.name, self.delimiter, self.mark = task, delimiter, mark
        self._answer = answer_rule(answer)
        if custom_tasks is not None and module is not None:
            raise InputError(
                f"module={module!r}: custom_tasks names the file that has the task; leave one of them out"
            )
        if find_spec("lighteval") is None:
            raise InputError("a task of lighteval needs that library; pip install lighteval beside metagen")
        if custom_tasks is not None:
            if not Path(custom_tasks).is_file():
                raise InputError(f"custom_tasks={custom_tasks!r} is no file; expected one with a TASKS_TABLE")
            trust.folder(Path(custom_tasks), f"custom_tasks={custom_tasks!r}")
        options = {
            "task": task, "custom_tasks": custom_tasks, "module": module, "shots": num_fewshot, "metric": metric,
            "chat": form != "text", "system": system, "limit": limit,
        }  # fmt: skip
        self._bench = Apart(f"lighteval's task {task!r}", f"{__name__}:Bench", options)
        #: Stop strings, for generators. Text behind the first of them is never read.
        self.stop: tuple[str, ...]
        self.stop, asked = self._bench.call("describe")
        self._problems = [Problem(_prompt(f"{task}/{i}", p, form), gold) for i, (p, gold) in enumerate(asked)]
        self._places = {problem.id: i for i, problem in enumerate(self._problems)}

    @property
    def answer(self) -> AnswerRule:
        return self._answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """The value of the metric for each completion, as lighteval computes it."""
        asked = {"index": self._places[problem.id], "texts": [s.text for s in sequences]}
        values: list[float] = await asyncio.to_thread(self._bench.call, "grade", **asked)
        return values


class Bench:
    """A task of lighteval, its documents, and the metric that grades them, in a process of its own.

    lighteval limits the time of a metric by alarms, which raise an error in any thread but the first.
    """

    def __init__(self, task: str, custom_tasks: str | None, module: str | None, shots: int, metric: str | None,
                 chat: bool, system: str | None, limit: int | None) -> None:  # fmt: skip
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002 - what lighteval seeds
        from lighteval.tasks.lighteval_task import LightevalTask
        from lighteval.tasks.prompt_manager import PromptManager

        config = copy.deepcopy(_find(task, custom_tasks, module))
        config.num_fewshots, config.full_name = shots, f"{task}|{shots}"
        self._task = task
        try:
            made = LightevalTask(config)
            self._name, self._metric = _choose(made, metric)
            self._documents = made.get_docs(limit)
        except MetagenError:
            raise
        except Exception as error:  # of functions that the task brings, or of its data set
            raise DataError(
                f"lighteval cannot load its task {task!r} ({type(error).__name__}: {str(error)[:300]}); look at its "
                "definition, and at its data set, which must be on this machine or within reach"
            ) from error
        if any(one.images for one in self._documents):
            raise UnsupportedError(f"task={task!r}: it shows images, and metagen sends text only")
        manager = PromptManager(system_prompt=system)
        self._prepare = manager.prepare_prompt_api if chat else manager.prepare_prompt
        # With a chat template, lighteval's engines let a model end by itself.
        self._stop = () if chat else tuple(filter(None, made.stop_sequence))

    def describe(self) -> tuple[tuple[str, ...], list[tuple[Any, str]]]:
        """Stop strings; of each problem its prompt, as text or as turns, and the right answer."""
        return self._stop, [(self._prepare(one), self._reference(one)) for one in self._documents]

    def grade(self, index: int, texts: list[str]) -> list[float]:
        return [self._grade(self._documents[index], text) for text in texts]

    def _grade(self, document: Any, text: str) -> float:
        from lighteval.metrics import apply_metric
        from lighteval.models.model_output import ModelResponse
        from lighteval.utils.utils import remove_reasoning_tags

        for stop in self._stop:
            text = text.split(stop)[0]
        response = ModelResponse(text=[text], text_post_processed=[remove_reasoning_tags(text, TAGS)])
        own = replace(document, specific=copy.deepcopy(document.specific))  # metrics write there
        try:
            (values,) = apply_metric([response], [own], [self._metric])
            value = float(values[self._name])
        except Exception as error:
            raise PluginError(
                f"metric={self._name!r} of lighteval's task {self._task!r} raised {type(error).__name__}: "
                f"{str(error)[:300]}"
            ) from error
        if not 0 <= value <= 1:
            raise UnsupportedError(
                f"metric={self._name!r} of lighteval's task {self._task!r} gives {value:g} for one completion; "
                "expected a metric in [0, 1]"
            )
        return value

    def _reference(self, document: Any) -> str:
        """The right answer, for people and for digests; several of them as JSON."""
        golds = [str(one) for one in document.get_golds()] if document.choices else []
        if any(golds):
            return golds[0] if len(golds) == 1 else json.dumps(golds, ensure_ascii=False)
        return f"(graded by {self._name}: {digest(repr(document.specific)).hex()[:12]})"


def _find(task: str, custom_tasks: str | None, module: str | None) -> Any:
    """The configuration of this name. One module alone is imported: some of lighteval's fetch files, and run them."""
    from lighteval.tasks.registry import Registry

    name = module or task.partition(":")[0]
    table: dict[str, Any] = {}
    for place in [custom_tasks] if custom_tasks else [f"{OWN}.{name}", f"{OWN}.{name}.main"]:
        try:
            found = Registry.create_custom_tasks_module(place) if custom_tasks else import_module(place)
        except Exception as error:  # of a module of tasks
            if isinstance(error, ModuleNotFoundError) and place.startswith(error.name or "?"):
                continue
            raise DataError(
                f"cannot load the tasks of {place!r} ({type(error).__name__}: {str(error)[:300]})"
            ) from error
        table |= {one.name: one for one in getattr(found, "TASKS_TABLE", ())}
    if task not in table:
        known = ", ".join(list(table)[:20]) or "none"
        remedy = "" if custom_tasks else f"; or give module, the one below {OWN} that has it"
        raise InputError(f"task={task!r}: the tasks of {custom_tasks or name!r} are {known}{remedy}")
    return table[task]


def _choose(made: Any, wanted: str | None) -> tuple[str, Any]:
    """A metric with its name. Raises InputError, and UnsupportedError for one that no strategy can be graded by."""
    from lighteval.metrics.metrics_sample import JudgeLLM
    from lighteval.utils.utils import as_list

    generative = [one for one in made.metrics if one.category == "GENERATIVE"]
    metrics = {name: one for one in generative for name in as_list(one.metric_name)}
    if not metrics:
        raise UnsupportedError(
            f"task={made.name!r}: it compares likelihoods of given texts, which a strategy has none of; choose a task "
            "with a generative metric, or evaluate the model by lighteval's own engines"
        )
    if any(number != 1 for number in made.num_samples):
        raise UnsupportedError(
            f"task={made.name!r}: it samples each problem {max(made.num_samples)} times, and a strategy gives one "
            "answer; define it in a file of your own with a metric of one sample, and let a strategy vote"
        )
    if wanted not in metrics and (wanted is not None or len(metrics) > 1):
        said = "needs metric" if wanted is None else f"has no metric {wanted!r}"
        raise InputError(f"lighteval's task {made.name!r} {said}; expected one of {', '.join(metrics)}")
    name = wanted or next(iter(metrics))
    metric, better = metrics[name], metrics[name].higher_is_better
    reason = None
    if type(metric.sample_level_fn).__module__.removeprefix(f"{OWN}.").split(".")[0] in RUN_CODE:
        reason = "runs code outside of a sandbox; task kinds such as livecodebench have one"
    elif metric.batched_compute or isinstance(metric.sample_level_fn, JudgeLLM):
        reason = "asks a judge, a model that no budget counts; make a judge a verifier"
    elif metric.get_corpus_aggregations()[name] is not np.mean:
        reason = "is computed over all problems at once; expected a mean over problems"
    elif not (better.get(name, True) if isinstance(better, dict) else better):
        reason = "is better where it is lower; expected one of accuracy"
    if reason is not None:
        raise UnsupportedError(f"metric={name!r} of lighteval's task {made.name!r} {reason}")
    return name, metric


def _prompt(name: str, asked: str | list[dict[str, str]], form: Form) -> Prompt:
    if isinstance(asked, str):
        return Prompt(name, text=asked, form="text")
    return Prompt(name, messages=tuple(map(Message.of, asked)), form=form)
