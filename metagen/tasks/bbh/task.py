"""BIG-Bench Hard: 27 sub-tasks on which models of 2022 were worse than people (Suzgun et al. 2022)."""

from __future__ import annotations

import json
import re
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.bbh.answers import LETTERS, BracketRule, OptionRule, SortedRule
from metagen.tasks.records import Hub, Record, RecordTask, Source, question, read, text
from metagen.tasks.solutions import math_rule
from metagen.tasks.template import SHOWN, Asking, Form, Turns, Wording
from metagen.template import escape
from metagen.values import Count
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import Rule, answer_rule
from metagen.verifiers.word import WordRule

Subtask = Literal[
    "boolean_expressions", "causal_judgement", "date_understanding", "disambiguation_qa", "dyck_languages",
    "formal_fallacies", "geometric_shapes", "hyperbaton", "logical_deduction_five_objects",
    "logical_deduction_seven_objects", "logical_deduction_three_objects", "movie_recommendation",
    "multistep_arithmetic_two", "navigate", "object_counting", "penguins_in_a_table",
    "reasoning_about_colored_objects", "ruin_names", "salient_translation_error_detection", "snarks",
    "sports_understanding", "temporal_sequences", "tracking_shuffled_objects_five_objects",
    "tracking_shuffled_objects_seven_objects", "tracking_shuffled_objects_three_objects", "web_of_lies",
    "word_sorting",
]  # fmt: skip


MARK: Final = "So the answer is"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What answers look like. end: what a model is asked to end with. rule: reads them. target: of the data set."""

    end: str
    rule: Callable[[], AnswerRule]
    target: re.Pattern[str]


def _words(first: str, second: str) -> AnswerForm:
    target = re.compile(f"{first}|{second}", re.IGNORECASE)
    end = f'"{MARK} {first}." or "{MARK} {second}."'
    return AnswerForm(end, lambda: WordRule(words=(first, second)), target)


OPTIONS: Final = AnswerForm(
    f'"{MARK}" and the letter of the right option in brackets.', OptionRule, re.compile(r"\([A-Z]\)")
)
YES: Final = _words("Yes", "No")
TRUE: Final = _words("True", "False")
VALID: Final = _words("valid", "invalid")
NUMBER: Final = AnswerForm(f'"{MARK}" and a number.', math_rule, re.compile(r"-?\d+"))
BRACKETS: Final = AnswerForm(
    f'"{MARK}" and the brackets that are missing, with a blank between them.',
    BracketRule,
    re.compile(r"[()\[\]{}<>](?: [()\[\]{}<>])*"),
)
SORTED: Final = AnswerForm(
    f'"{MARK}" and the sorted words, with a blank between them.', SortedRule, re.compile(r"\S+(?: \S+)+")
)
#: In which order a form is looked for in the targets of an unknown sub-task.
FORMS: Final = (OPTIONS, YES, TRUE, VALID, NUMBER, BRACKETS, SORTED)
#: The sub-tasks whose answers are no options.
OTHERS: Final[Mapping[str, AnswerForm]] = {
    **dict.fromkeys(("causal_judgement", "navigate", "sports_understanding", "web_of_lies"), YES),
    "boolean_expressions": TRUE,
    "formal_fallacies": VALID,
    **dict.fromkeys(("multistep_arithmetic_two", "object_counting"), NUMBER),
    "dyck_languages": BRACKETS,
    "word_sorting": SORTED,
}
#: What stands before questions that do not say what is asked.
BEFORE: Final[Mapping[str, str]] = {
    "boolean_expressions": "What is the value of this Boolean expression?\n\n",
    "multistep_arithmetic_two": "Compute the value of this expression.\n\n",
    "geometric_shapes": "Which shape is drawn?\n\n",
}
_OPTION: Final = re.compile(r"^\(([A-Z])\)[ \t]*(.*)$", re.MULTILINE)
_INPUT: Final = re.compile(r"(?:Input|List):(.*)\Z", re.DOTALL)
_THINK: Final = "Let's think step by step."


class BBHTask(RecordTask):
    """Fields `input` and `target`, as records, or as `examples` of a JSON file; one sub-task a file.

    subtask: its name, such as `word_sorting`, by default that of the file, or the configuration of the hub's data set.
    It says how answers are read: letters of options, words, numbers, brackets, sorted words. Without a name, the form
    of the targets says it.
    form: `chat`, `text` or `auto` ask without examples; `few_shot` and `few_shot_chat` show those of `examples`, or
    `shots` (`question`, `solution`).
    examples: the file of a sub-task's worked examples, as published: `cot-prompts/word_sorting.txt`.
    answer: another rule for answers. prompt: as of GSM8KTask. limit: the first problems only.
    Raises DataError as RecordTask does; InputError where no sub-task is named and none is meant by the data, and for
    `few_shot` without examples.
    """

    name = "bbh"
    hub: ClassVar[Hub] = Hub("lukaemon/bbh")

    def __init__(
        self,
        source: Source | None = None,
        *,
        subtask: Subtask | None = None,
        prompt: Wording | None = None,
        form: Form = "chat",
        answer: Rule | None = None,
        examples: str | Path | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        self.source = _published(source, subtask)
        self.subtask = subtask or _named(self.source)
        if self.subtask is not None and self.subtask not in get_args(Subtask):
            raise InputError(f"subtask={subtask!r}: expected one of {', '.join(get_args(Subtask))}")
        if (named := _named(self.source)) not in (None, self.subtask):
            raise InputError(
                f"subtask={subtask!r}: {str(self.source)!r} is of {named}; leave subtask out, or give its own data"
            )
        answers = self._form_of_targets() if self.subtask is None else OTHERS.get(self.subtask, OPTIONS)
        self._asking = _asking(self.subtask, answers, form, examples, shots).adapt(
            "question", prompt=prompt, form=form, shots=shots
        )
        self.stop, self.mark = self._asking.stops, self._asking.mark
        if form not in SHOWN and prompt is None:
            self.mark = MARK
        rule = answers.rule() if answer is None else answer_rule(answer)
        super().__init__(self.source, answer=self._asking.answer(rule), limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        asked, target = question(record, "input").strip(), text(record, "target").strip()
        public = _public(asked)
        options = public.get("options", ())
        if OPTIONS.target.fullmatch(target) and LETTERS.index(target[1]) >= max(2, len(options)):
            raise DataError(f"the target {target!r} is none of the options; the question has {len(options)}")
        name = f"{self.name}/{self.subtask or _stem(self.source)}/{number - 1}"
        return Problem(self._asking.prompt(name, {"question": asked}, public), target)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        if isinstance(self.source, Hub) or Path(self.source).suffix.lower() != ".json":
            return read(self.source)
        return _from_json(Path(self.source))

    def _form_of_targets(self) -> AnswerForm:
        """The form that most targets have: a few published ones are out of form."""
        targets = [str(r.get("target")).strip() for _, r in self._records() if not isinstance(r, DataError)]
        for form in FORMS:
            if targets and sum(form.target.fullmatch(t) is not None for t in targets) * 10 >= 9 * len(
                targets
            ):
                return form
        raise InputError(
            f"{str(self.source)!r} is named like no sub-task, and its targets have no form in common; give subtask: "
            f"one of {', '.join(get_args(Subtask))}"
        )


def read_examples(path: str | Path) -> tuple[str, list[dict[str, str]]]:
    """What a published file of worked examples says before them, and each with `question` and `solution`.

    Raises DataError for a file that cannot be read, or holds none.
    """
    try:
        whole = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read {str(path)!r}: {error}; give a file such as cot-prompts/NAME.txt"
        ) from None
    said = whole.rpartition("\n-----\n")[2].strip("\n")
    head, *asked = re.split(r"^Q: ", said, flags=re.MULTILINE)
    shots = []
    for one in asked:
        given, found, solution = one.partition("\nA: ")
        # What is left begins as the model's own text will: behind the same words.
        solution = solution.strip().removeprefix(_THINK)
        if not (found and given.strip() and solution.strip()):
            raise DataError(f"{str(path)!r}: 'Q: {given.strip()!r:.60}' has no 'A: ' below it with an answer")
        shots.append({"question": given.strip(), "solution": solution})
    if not shots:
        raise DataError(
            f"{str(path)!r} holds no examples; expected 'Q: …' and below it 'A: …', several times"
        )
    return head.strip(), shots


def _asking(
    subtask: str | None,
    answers: AnswerForm,
    form: str,
    examples: str | Path | None,
    shots: abc.Sequence[Mapping[str, str]] | None,
) -> Asking:
    """The wording of a sub-task, with the examples of a file. InputError for examples without use, and for none."""
    usual = Asking(
        turns=Turns(
            f"{BEFORE.get(subtask or '', '')}{{question}}\n\nThink step by step, and end with {answers.end}"
        ),
        example=f"Q: {{question}}\nA: {_THINK}",
        shots=(),
        stop="\n\nQ:",
        asked="{question}",
    )
    if examples is None:
        if form in SHOWN and not shots:
            raise InputError(
                f"form={form!r} shows worked examples; give examples: the file of the sub-task's, such as "
                f"cot-prompts/{subtask or 'NAME'}.txt of the data set's repository"
            )
        return usual
    if shots is not None or form not in SHOWN:
        raise InputError(
            f"examples={str(examples)!r} are those of form few_shot and few_shot_chat, in place of shots, and "
            f"form={form!r}{' with shots' if shots is not None else ''}; leave one of them out"
        )
    head, found = read_examples(examples)
    return replace(
        usual,
        head=head,
        shots=tuple(found),
        asked=f"{escape(head)}\n\n{{question}}" if head else "{question}",
    )


def _published(source: Source | None, subtask: str | None) -> Source:
    """The source, or the data set on the hub, of which each sub-task is a configuration."""
    if source is None and subtask is None:
        raise InputError(f"subtask=None: expected one of {', '.join(get_args(Subtask))}, or a path")
    found = BBHTask.hub if source is None else source
    if isinstance(found, Hub) and found.config is None and subtask is not None:
        return replace(found, config=subtask)
    return found


def _named(source: Source) -> str | None:
    """The sub-task that a source is called after."""
    name = source.config if isinstance(source, Hub) else _stem(source)
    return name if name in get_args(Subtask) else None


def _stem(source: Source) -> str:
    return source.config or source.name if isinstance(source, Hub) else Path(source).stem


def _from_json(path: Path) -> Iterator[tuple[int, Record | DataError]]:
    """The examples of a published file."""
    try:
        whole = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {str(path)!r}: {error}; expected JSON with a list `examples`") from None
    found = whole.get("examples") if isinstance(whole, dict) else None
    if not isinstance(found, list):
        raise DataError(f'{str(path)!r} has no list \'examples\'; expected {{"examples": [{{"input": …}}]}}')
    for number, one in enumerate(found, 1):
        yield (
            number,
            one if isinstance(one, dict) else DataError(f"{one!r:.60} is no object with input and target"),
        )


def _public(asked: str) -> dict[str, Any]:
    """What the rules for answers need to know of a question; all of it stands there."""
    options = _OPTION.findall(asked.partition("\nOptions:")[2])
    if options and [letter for letter, _ in options] == list(LETTERS[: len(options)]):
        return {"options": [said.strip() for _, said in options]}
    given = _INPUT.search(asked)
    if given is None:
        return {}
    is_brackets = BRACKETS.target.fullmatch(given[1].strip())
    return {"begun": given[1].strip()} if is_brackets else {"words": given[1].split()}
