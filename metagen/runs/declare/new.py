"""A first experiment file: every section with a word on what it does and what else it can be."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Final, Literal, get_args

from metagen.errors import InputError, ModelError
from metagen.generators.directory import chat_template
from metagen.generators.models import sources
from metagen.runs.declare import registry
from metagen.runs.declare.source import nearest

Task = Literal["arithmetic", "jsonl"]

MODEL: Final = "tiny-0.5m"
#: Problems that the embedded models understand, as a file of data; id, question, answer.
EXAMPLES: Final = (
    ("chain-1", "a=11*3;b=a+38;b?", "71"),
    ("chain-2", "a=42/3;b=a+2;c=b+47;c?", "63"),
    ("chain-3", "a=18*4;b=a/8;c=b/9;c?", "1"),
    ("chain-4", "a=12+9;b=a+8;b?", "29"),
)

HEAD: Final = """\
# $title
#
#   metagen run $file --dry-run    what it will take, before anything is spent
#   metagen run $file --limit 2    a first look, at two problems
#   metagen run $file              all of it; resume what was interrupted by: metagen resume $name

# The run's directory is runs/$name.
name: $quoted

# Same seed, same samples. Another one draws all of them anew.
seed: 0
"""

ARITHMETIC: Final = """
# What is asked, and when an answer is right.
# Kinds: $task_kinds.
task:
  kind: arithmetic        # chains of small calculations, which the embedded models were trained for
  split: validation       # train, validation or test: disjoint problems; keep test for your last measurement
  levels: [1, 2, 3, 4]    # of 1 (easy) to 8; embedded models have seen up to 6
  per_level: 20           # problems of each level
  seed: 2026              # another seed, other problems
"""

JSONL: Final = """
# What is asked, and when an answer is right.
# Kinds: $task_kinds.
task:
  kind: jsonl             # problems from a file, one JSON object a line:
  # {"id": …, "question": …, "answer": …}, and "level" if there are levels; the path begins at this file
  path: $data
  # fields: {question: problem, answer: solution}   # where the file has other names for them
  # reference: '#### (.*)'          # where the right answer stands inside its field
  # pattern: '(?:Answer): *(.*)'    # where the answer stands in a completion; by default on a line "A: …"
$prompt"""

PLAIN: Final = """\
  # What the model reads, in the form that it was trained on. Turns, for a model with a chat template:
  # prompt: {system: 'End with a line "A:" and the answer.', user: "{question}"}
  prompt: $prompt
"""

TURNS: Final = """\
  # What the model reads, by its chat template; also shots: [{user: …, assistant: …}], examples, and assistant: …
  prompt:
    system: 'Solve it step by step. End with a line "A:" and the answer.'
    user: "{question}"
"""

ENGINES: Final = """
# Models, each loaded once. Kinds: $engines_kinds.
engines:
  writer:
    kind: torch           # runs Llama, Mistral, Qwen2 and Qwen3 on this machine
    # A directory in Hugging Face's layout, or an embedded model (metagen models lists them):
    model: $model
    # device: cuda:0      # by default the GPU if there is one, else the processor
    # dtype: bfloat16     # float32, bfloat16 or float16; by default bfloat16 on a GPU, on a processor by its size
    # max_batch: 256      # samples that are decoded at once
"""

JUDGE: Final = """\
  judge: {kind: torch, model: tiny-prm}
"""

GENERATORS: Final = """
# Who writes: an engine and how it samples. Several of them are compared. Kinds: $generators_kinds.
generators:
  writer:
    engine: writer
    temperature: 1.0      # 0 is greedy; also top_k, top_p
    max_tokens: 256       # of one solution, at most
    # stop: ["\\n\\n"]      # texts that end a solution
  cool:                   # the same for one sample alone, which wants less chance: a baseline that is fair
    engine: writer
    temperature: 0.5      # tune it on problems of their own, as a study does (metagen study)
    max_tokens: 256
"""

VERIFIERS: Final = """
# Who judges, by scores from 0 to 1.
# Kinds: $verifiers_kinds.
verifiers:
  steps:
    kind: prm             # a process reward model: a score for each step of a solution
    engine: judge
    aggregation: min      # of the steps, to one score: last, min, mean or product
"""

NO_VERIFIERS: Final = """
# Who judges, by scores from 0 to 1.
# Kinds: $verifiers_kinds.
# verifiers:
#   steps: {kind: prm, engine: judge, aggregation: min}   # a process reward model, on an engine of its own
"""

STRATEGIES: Final = """
# How samples become an answer. Kinds: $strategies_kinds.
#
# A chain has steps. Kinds: $steps_kinds.
#
# Searches, and `parallel`, have an aggregator. Kinds: $aggregators_kinds.
#
# Minimum Bayes risk has a utility. Kinds: $utilities_kinds.
#
# `adaptive` has a rule that says when there are enough samples. Kinds: $stopping_kinds.
#
# With `answer`, a strategy reads answers by another rule than the task's. Kinds: $answers_kinds.
strategies:
  single: {kind: sample}                          # the first sample, as it comes
  greedy: {kind: greedy}                          # the most likely token at every place
  majority: {kind: majority}                      # the most frequent answer of n samples
"""

SCORED: Final = """\
  best-of-n: {kind: best_of_n, verifier: steps}   # the sample of the highest score
  weighted: {kind: weighted, verifier: steps}     # the answer of the highest total score
"""

NO_SCORED: Final = """\
  # best-of-n: {kind: best_of_n, verifier: steps}  # the sample of the highest score
"""

TAIL: Final = """
# What is run: these generators with these strategies, at every n; without pairs, all with all.
grid:
  n: [1, 2, 4, 8, 16]     # every n is measured on one pool of the largest
  pairs:
    - [writer, greedy]    # what more samples have to beat: greedy decoding,
    - [cool, single]      # and one sample at a temperature that suits it
    - [writer, single]
    - [writer, majority]
$scored_pairs
# What one problem may cost one configuration, at most; what does not fit is cut or refused, never overshot.
# budget: {generated: 4000}   # also prefilled, calls, flops, money, seconds

# How it is run; changes no result.
executor:
  concurrency: 64         # problems in work at a time
"""

#: Letters of a line of comment.
WIDTH = 110


def write(
    file: Path,
    task: Task = "arithmetic",
    *,
    model: str = MODEL,
    data: Path | None = None,
    strategies: Iterable[str] = (),
) -> list[Path]:
    """Write an experiment file, for `jsonl` without `data` also a few problems beside it; returns the files.

    strategies: kinds to write down with all their fields. Raises InputError for a file that is there already, for
    data that are not, for data of another task, and for an unknown kind.
    """
    if data is not None and task != "jsonl":
        raise InputError(f"--data {str(data)!r} is for --task jsonl, not for {task!r}; leave one of them out")
    if data is not None and not data.is_file():
        raise InputError(f"there is no file {str(data)!r}; give the path of a JSONL file")
    pages: dict[Path, str] = {}
    if task == "jsonl" and data is None:
        data = file.with_suffix(".jsonl")
        pages[data] = "".join(
            json.dumps(dict(zip(("id", "question", "answer"), e, strict=True))) + "\n" for e in EXAMPLES
        )
    prompt = None if task == "jsonl" and _chats(model) else "Q:{question}\nS:\n" if pages else "{question}\n"
    named = {"model": _from(file, model), "data": _relative(file, data)}
    pages[file] = text(file, task, **named, prompt=prompt, strategies=strategies)
    for path in pages:
        if path.exists():
            raise InputError(f"{str(path)!r} is there already; remove it, or give another name")
    for path, page in pages.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                stream.write(page)
        except OSError as error:
            raise InputError(f"cannot write {str(path)!r}: {error.strerror}; give another path") from error
    return [file, *(path for path in pages if path != file)]


def text(
    file: Path, task: Task, *, model: str, data: str, prompt: str | None, strategies: Iterable[str] = ()
) -> str:
    """The experiment file itself; `data` and `model` as the file names them. prompt: None for turns of a chat."""
    judged = task == "arithmetic"
    asked_for = list(dict.fromkeys(strategies))
    parts = [
        HEAD,
        ARITHMETIC if task == "arithmetic" else JSONL,
        ENGINES, JUDGE if judged else "",
        GENERATORS,
        VERIFIERS if judged else NO_VERIFIERS,
        STRATEGIES, SCORED if judged else NO_SCORED, "$described",
        TAIL,
    ]  # fmt: skip
    stem = re.sub(r"\.[^.]*$", "", file.name)  # Path.stem of `....yaml` depends on Python's version
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", stem).lstrip("._+-") or "experiment"
    sections: tuple[registry.Section, ...] = get_args(registry.Section)
    kinds = {f"{section}_kinds": ", ".join(registry.kinds(section)) for section in sections}
    title = "How far do more samples carry this model, and which strategy uses them best?"
    described = list(map(_called, asked_for))
    # A strategy that is described with all its fields replaces the short line of its name.
    parts = [_without(part, described) if part in (STRATEGIES, SCORED) else part for part in parts]
    paired = ["best-of-n", "weighted"] if judged else []
    paired += [one for one in described if one not in paired and f"[writer, {one}]" not in TAIL]
    given = {
        "described": "".join(describe(kind, "steps" if judged else "") for kind in asked_for),
        "scored_pairs": "".join(f"    - [writer, {name}]\n" for name in paired),
        "title": title,
        "file": shlex.quote(str(file)),
        "name": name,
        "quoted": _quote(name),
        "model": _quote(model),
        "data": _quote(data),
    }
    asked = TURNS if prompt is None else Template(PLAIN).substitute(prompt=json.dumps(prompt))
    written = Template("".join(parts)).substitute(given | kinds, prompt=asked)
    return "".join(_fold(line) for line in written.splitlines(keepends=True))


def describe(kind: str, verifier: str = "") -> str:
    """A strategy of this kind with all its fields, as they are declared: those with a default are commented out.

    kind: a name, or package.module:Class. verifier: the name of one, for a field without a default that needs it. A
    field that only the user can fill is left empty. Raises InputError for an unknown kind.
    """
    from metagen.runs.declare.words import fields_of

    if ":" not in kind and kind not in (known := registry.kinds("strategies")):
        raise InputError(
            f"there is no strategy {kind!r}{nearest(kind, known)}; there are {', '.join(known)}, and "
            "package.module:Class"
        )
    registry.find("strategies", kind)
    lines = [f"  {_called(kind)}:", f"    kind: {_quote(kind)}"]
    for one in fields_of("strategies", kind):
        if one.name == "over":
            continue
        needed = verifier if one.what.startswith("the name of a verifier") else ""
        line = f"    {one.name}: {needed}" if one.needed else f"    # {one.name}: {one.default}"
        lines.append(f"{line.rstrip():<28}# {one.what}")
    return "\n".join(lines) + "\n"


def _called(kind: str) -> str:
    """What a strategy is called in the file: its kind; of package.module:Class, the class."""
    return kind.rpartition(":")[2]


def _without(part: str, names: Iterable[str]) -> str:
    """A section of the file without its lines for strategies of these names."""
    starts = tuple(f"  {name}: " for name in names)
    return "".join(line for line in part.splitlines(keepends=True) if not line.startswith(starts))


def _fold(line: str) -> str:
    """A comment of its own in lines that a terminal shows whole."""
    if not line.startswith("# ") or len(line) <= WIDTH:
        return line
    return textwrap.fill(line[2:].strip(), WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"


def _chats(model: str) -> bool:
    """Whether a model was trained on turns of a chat; packaged models were, also before they are fetched."""
    if not sources.is_named(model) and model.lower().endswith(".gguf"):
        return True  # as models that come in one file are; it is converted when it is first run
    try:
        return chat_template(sources.resolve(model)) is not None
    except ModelError:
        return sources.is_named(model)


def _from(file: Path, model: str) -> str:
    """A model's name, or its directory as seen from the experiment file."""
    return model if sources.is_named(model) else _relative(file, Path(model).expanduser())


def _relative(file: Path, path: Path | None) -> str:
    return "" if path is None else os.path.relpath(path, file.parent)


def _quote(word: str) -> str:
    """Quote a word for YAML, which reads JSON's quotes, unless it is plain and nothing but a text."""
    plain = re.fullmatch(r"(?:[A-Za-z_]|\.{0,2}/)[A-Za-z0-9_./+-]*", word)
    return word if plain and word.lower() not in ("null", "true", "false") else json.dumps(word)
