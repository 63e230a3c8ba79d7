"""Which layout a reward model was trained with, read from its directory.

A `metagen` entry in config.json says it in full. Else the architecture does, where it belongs to one kind of reward
model. A language model's config.json cannot: Math-Shepherd's and RLHFlow's models are plain MistralForCausalLM and
LlamaForCausalLM, so their layouts are named by whoever uses them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from metagen.errors import InputError, ModelError
from metagen.generators.directory import chat_template
from metagen.generators.tokenizer import apply_template
from metagen.values import Expects
from metagen.verifiers.layouts import ChatSteps, Layout, SeparatorSteps, TaggedSteps, WholeSolution

Kind = Literal["prm", "orm"]

#: Layouts by name. What depends on the directory (beginning-of-sequence token, chat template) is filled in from it.
LAYOUTS: Final[Mapping[str, Layout]] = {
    "math-shepherd": TaggedSteps("ки", "+", "-", "\n", inline=True),
    "rlhflow": ChatSteps(),
    "qwen-math": SeparatorSteps("<extra_0>", "\n\n", chat=True),
    "skywork": SeparatorSteps("\n", "\n", start="<|endoftext|>", gap="\n"),
    "trl": SeparatorSteps("\n", "\n"),
    "whole": WholeSolution(),
}
LayoutName = Annotated[Literal[*LAYOUTS], Expects(f"one of the layouts {', '.join(LAYOUTS)}")]  # type: ignore[valid-type]  # the names of a table
#: Ends of architectures' names, and the layout and kind of each.
ARCHITECTURES: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("ForProcessRewardModel", "qwen-math", "prm"),
    ("ForPrmModel", "skywork", "prm"),
    ("ForTokenClassification", "trl", "prm"),
    ("ForSequenceClassification", "whole", "orm"),
    ("ForRewardModel", "whole", "orm"),
)
#: Ends of the names of architectures whose head gives the next token.
LANGUAGE_MODELS: Final = ("ForCausalLM", "LMHeadModel")
#: What `id2label` calls an output that says right, or wrong.
RIGHT: Final = frozenset({"+", "correct", "good", "pos", "positive", "right", "true", "valid", "yes"})
WRONG: Final = frozenset({"-", "bad", "false", "incorrect", "invalid", "neg", "negative", "no", "wrong"})


def layout_of(model: str | Path, kind: Kind | None = None) -> Layout:
    """The layout of a model directory: the entry `metagen` of its config.json, or `metagen_orm` and the like beside it.

    ModelError, with the remedy, if it cannot be told, or is of another kind.
    """
    path = Path(model) / "config.json"
    config = _json(path)
    entry = config.get("metagen")
    if kind is not None and isinstance(entry, dict) and entry.get("kind") != kind:
        # A model that is of two kinds names the second besides.
        entry = config.get(f"metagen_{kind}", entry)
    if entry is not None and not isinstance(entry, dict):
        raise ModelError(f"{str(path)!r}: 'metagen' is {entry!r:.60}; expected an object, or no such entry")
    if entry is not None and ("tag" in entry or "layout" in entry):
        found = str(entry.get("kind", kind))
        layout = _entered(path, entry)
    else:
        name, found = _by_architecture(path, config)
        layout = find_layout(name, model)
    if kind is not None and found != kind:
        raise ModelError(
            f"{str(path)!r} is of kind {found!r}, and is used as {kind!r}: "
            "one scores steps, the other whole solutions; give the verifier the kind of the model"
        )
    return layout


def find_layout(name: str, model: str | Path | None = None, *, opens: bool = True) -> Layout:
    """The published layout of that name, with what the model's directory has to say.

    opens: the chat template says what stands before a solution. Raises InputError for an unknown name.
    """
    if name not in LAYOUTS:
        raise InputError(f"layout={name!r}: expected one of {', '.join(LAYOUTS)}, or a Layout")
    layout, directory = LAYOUTS[name], None if model is None else Path(model)
    if directory is None:
        return layout
    if isinstance(layout, SeparatorSteps) and layout.start:
        return dataclasses.replace(layout, start=_beginning(directory) or layout.start)
    if isinstance(layout, WholeSolution) and chat_template(directory):
        opening, closing = _around(directory, opens)
        return WholeSolution(chat=True, closing=closing, opening=opening)
    return layout


def special_tokens(model: Path) -> tuple[str, ...]:
    """Texts that the tokenizer reads as control tokens; none if it has no tokenizer.json."""
    path = model / "tokenizer.json"
    added = _json(path).get("added_tokens") or [] if path.exists() else []
    return tuple(token["content"] for token in added if token.get("special"))


def scores(model: Path) -> bool:
    """Whether the architecture has a head that scores, not a language model's."""
    return _architecture(_json(model / "config.json")).endswith(tuple(end for end, _, _ in ARCHITECTURES))


def check_head(model: Path, layout: Layout) -> None:
    """ModelError if the directory's own config.json says that its outputs cannot be read by a layout for heads.

    One output is a reward; of two, the second is to say right, and `id2label`, where it is in words, says so too.
    """
    path = model / "config.json"
    config = _json(path)
    if _architecture(config).endswith(LANGUAGE_MODELS):
        raise ModelError(
            f"{str(path)!r}: a {_architecture(config)} is a language model and has no outputs that score, which "
            f"{layout!r} reads; give a layout of labels, such as tags, math-shepherd or rlhflow"
        )
    names = config.get("id2label")
    if not isinstance(names, dict) or len(names) < 2:
        return
    if len(names) > 2:
        raise ModelError(
            f"{str(path)!r}: a head of {len(names)} classes {list(names.values())!r}; a reward model has one output or "
            "two (wrong, right); score with a verifier of your own"
        )
    wrong, right = (str(names.get(key, "")).strip().casefold() for key in ("0", "1"))
    if wrong in RIGHT or right in WRONG:
        raise ModelError(
            f"{str(path)!r}: id2label={names!r} calls the first of two outputs right, and the second is what is read; "
            "swap the rows of the head and the labels, or score with a verifier of your own"
        )


def _entered(path: Path, entry: Mapping[str, Any]) -> Layout:
    """What the `metagen` entry says: tags, or a layout's name with fields to replace."""
    opens = entry.get("chat") is not False and "opening" not in entry
    named = entry.get("layout")
    layout = TaggedSteps() if named is None else find_layout(str(named), path.parent, opens=opens)
    fields = {f.name for f in dataclasses.fields(layout) if f.init}  # type: ignore[arg-type]  # all are dataclasses
    for name in entry:
        if name not in fields | {"kind", "layout"}:
            raise ModelError(
                f"{str(path)!r}: the entry 'metagen' has a field {name!r}; expected kind, layout or, for "
                f"{type(layout).__name__}, {', '.join(sorted(fields))}{_near(name, fields)}"
            )
    try:
        return dataclasses.replace(layout, **{k: v for k, v in entry.items() if k in fields})  # type: ignore[type-var]  # as above
    except InputError as error:
        raise ModelError(f"{str(path)!r}: in the entry 'metagen': {error}") from None


def _near(name: str, known: Collection[str]) -> str:
    found = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""


def _by_architecture(path: Path, config: Mapping[str, Any]) -> tuple[str, Kind]:
    architecture = _architecture(config)
    for end, name, kind in ARCHITECTURES:
        if architecture.endswith(end):
            return name, kind
    raise ModelError(
        f"{str(path)!r} names no step tag, and architectures={config.get('architectures')!r} does not tell how the "
        'model was trained to score: expected an entry "metagen": {"tag": …, "positive": …, "negative": …} or '
        f'{{"layout": …}}, or give layout=, one of {", ".join(LAYOUTS)}'
    )


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _beginning(directory: Path) -> str | None:
    """The beginning-of-sequence token: the tokenizer's, else the one whose id the model's config gives."""
    path = directory / "tokenizer_config.json"
    token = _json(path).get("bos_token") if path.exists() else None
    if token is not None:
        return str(token["content"] if isinstance(token, dict) else token)
    id, path = _json(directory / "config.json").get("bos_token_id"), directory / "tokenizer.json"
    added = _json(path).get("added_tokens") or [] if path.exists() else []
    return next((str(t["content"]) for t in added if t.get("id") == id), None)


def _around(directory: Path, opens: bool) -> tuple[str, str]:
    """What the chat template puts around what the assistant says: behind an open turn of its own, and at the end."""
    from transformers import AutoTokenizer  # slow to import, and only templates need it

    mark = "§"
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": mark}]
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    before, there, closing = apply_template(tokenizer, turns, directory).rpartition(mark)
    if not there:
        raise ModelError(
            f"{directory}: the chat template leaves out what the assistant says, so a solution cannot be scored; "
            "use the tokenizer that the reward model was trained with"
        )
    if not opens:
        return "", closing
    begun = apply_template(tokenizer, turns[:1], directory, add_generation_prompt=True)
    if not before.startswith(begun):
        raise ModelError(
            f"{directory}: the chat template opens the assistant's turn with {begun[-60:]!r}, and before an answer "
            f"there is {before[-60:]!r}, so a solution cannot be scored as in training; use the tokenizer that the "
            'reward model was trained with, or give "opening" in the entry "metagen" of config.json'
        )
    return before.removeprefix(begun), closing


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot read {str(path)!r}: {error}; give the directory of a reward model"
        ) from error
    if not isinstance(data, dict):
        raise ModelError(f"{str(path)!r} holds no JSON object; give the directory of a reward model")
    return data
