"""What sampling adapters do to a real next-token distribution: as a table, a picture, a page."""

from __future__ import annotations

import json
from collections import abc
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure
from pydantic import ValidationError
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from metagen import html
from metagen.analysis.distributions import stage_bars, token_name
from metagen.analysis.figures import inline, style
from metagen.errors import InputError, ModelError
from metagen.generators.decoding.adapters import XTC, Dry, Mirostat, whole
from metagen.generators.decoding.stages import Pipeline, check_names, pipeline
from metagen.generators.decoding.words import spell
from metagen.generators.engine import SamplingParams
from metagen.generators.models.describe import tokenizer_of
from metagen.generators.models.recipes import Model, Recipe
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.runs.declare.specs.generators import GrammarSpec
from metagen.runs.declare.specs.models import MODEL, RecipeSpec
from metagen.sequence import Sequence
from metagen.verifiers.layouts import TaggedSteps
from metagen.verifiers.published import layout_of

#: Tokens that are shown.
MOST = 12
#: Kinds of files that a picture is written to.
PICTURES = (".html", ".png", ".svg")


def explain(model: str, prompt: str, completion: str, params: SamplingParams) -> Pipeline:
    """The pipeline of `params`, behind a prompt and what the model has written.

    model: a directory, the name of an embedded model, or a recipe in YAML. InputError for what is none.
    """
    with TorchEngine(_model(model)) as engine:
        start = Sequence.of(prompt)
        return pipeline(engine, start.extend(completion) if completion else start, params)


def cautions(model: str, prompt: str, completion: str) -> list[str]:
    """What makes the next token of this model, behind these texts, mean less than it seems. Arguments: of `explain`."""
    found, made = [], _model(model)
    if tags := _tags(made):
        found.append(
            f"{model!r} is a reward model: it scores by {tags.positive!r} and {tags.negative!r} behind {tags.tag!r}, "
            "and what follows elsewhere is no text that it was trained to write"
        )
    tokens = tokenizer_of(made)

    def is_lost(text: str) -> bool:
        return bool(text) and spell(text, tokens.encode, tokens.decode, tokens.vocab_size) is None

    for name, text in (("prompt", prompt), ("completion", completion)):
        if is_lost(text) and (unknown := [one for one in dict.fromkeys(text) if is_lost(one)]):
            found.append(
                f"the {name} has characters that the tokens cannot write, so that the model reads something else in "
                f"their place: {', '.join(map(repr, unknown[:MOST]))}"
            )
    return found


def _tags(model: Model) -> TaggedSteps | None:
    """Of a language model that speaks as a reward model."""
    if isinstance(model, Recipe):
        return None
    try:
        layout = layout_of(resolve(model))
    except ModelError:  # most models are no reward models
        return None
    return layout if isinstance(layout, TaggedSteps) else None


def _model(text: str) -> Model:
    if not text.lstrip().startswith("{"):
        return text
    try:
        # As experiment files are: strictly, but lists become tuples.
        recipe: Model = RecipeSpec.model_validate_json(json.dumps(yaml.safe_load(text))).value
        return recipe
    except yaml.YAMLError:
        raise InputError(
            f"--model {text!r}: no YAML; expected {MODEL}, or a recipe as experiments have it"
        ) from None
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the recipe"
        raise InputError(f"--model {text!r}: {place}: {first['msg'].removeprefix('Value error, ')}") from None


def params_of(adapters: abc.Sequence[str], preset: str | None = None) -> SamplingParams:
    """Parameters from what a user types: NAME=VALUE, the value in YAML. InputError for what is none, or given twice."""
    given: dict[str, Any] = {}
    for one in adapters:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise InputError(f"--adapter {one!r}: expected NAME=VALUE, such as top_p=0.9")
        check_names([name])
        if name in given:
            raise InputError(
                f"--adapter {one!r}: {name} is given twice; each adapter works once, in a fixed order"
            )
        given[name] = _value(name, text)
    # Only adapters are asked for: the text may be as long as they need it.
    forced, least = given.get("forced", ()), given.get("min_tokens", 0)
    length = len(forced.encode() if isinstance(forced, str) else forced)
    given["max_tokens"] = max(SamplingParams().max_tokens, length, least if whole(least) else 0)
    return SamplingParams.preset(preset, **given) if preset else SamplingParams().replace(**given)


def _value(name: str, text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(
            f"--adapter {name}={text!r}: the value is no YAML; quote it, as in {name}='[\"a\"]'"
        ) from None
    made = {"mirostat": Mirostat, "dry": Dry, "xtc": XTC}
    shapes = {
        "grammar": "{regex: '[0-9]+'}", "mirostat": "{tau: 3}", "dry": "{multiplier: 0.8}", "xtc": "{threshold: 0.1}",
    }  # fmt: skip
    if name in shapes:
        try:
            if name in made:
                return made[name](**{key: _frozen(one) for key, one in value.items()})
            # As experiment files are: strictly, but lists become tuples.
            return GrammarSpec.model_validate_json(json.dumps(value)).value
        except (AttributeError, TypeError, ValidationError):
            raise InputError(
                f"--adapter {name}={text!r}: expected a mapping such as {shapes[name]}"
            ) from None
    if name == "banned" and isinstance(value, list) and (ids := [one for one in value if whole(one)]):
        raise InputError(
            f"--adapter {name}={text!r}: {ids[0]!r} is neither a text nor a list of token ids; expected a list of "
            f"these, such as {_yaml([[one] if whole(one) else one for one in value])}, or ['a', [1, 2]]"
        )
    if name in ("banned", "forced") and not isinstance(value, list):
        return (text,) if name == "banned" else text
    return _frozen(value)


def _yaml(value: list[Any]) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=1000)).strip()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def picture(found: Pipeline, *, most: int = MOST, title: str = "") -> Figure:
    """A panel for each stage."""
    shown = found.best(most)
    stages = {stage.adapter: stage.p[shown] for stage in found.stages}
    return stage_bars(stages, [found.tokens[i] for i in shown], title=title)


def render(found: Pipeline, *, most: int = MOST) -> RenderableType:
    """A row for each token, a column for each stage; then how many tokens are left, their entropy, and what was cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("token", no_wrap=True)
    for stage in found.stages:
        table.add_column(Text(stage.adapter or "model"), justify="right", overflow="fold")
    for row in _rows(found, most):
        table.add_row(*map(Text, row))
    table.add_section()
    for row in _summary(found):
        table.add_row(*map(Text, row), style="dim")
    return Group(
        table, Text("Each column is the distribution behind its adapter and all those before it.", "dim")
    )


def data(found: Pipeline, *, most: int = MOST) -> list[dict[str, Any]]:
    """The stages as JSON, with the probabilities of the tokens that are shown."""
    shown = found.best(most)
    return [
        {
            "adapter": stage.adapter or None,
            "tokens_left": stage.left,
            "entropy_bits": stage.entropy,
            "probabilities": [[found.tokens[i], float(stage.p[i])] for i in shown],
        }
        for stage in found.stages
    ]


def check_file(file: Path) -> None:
    """InputError for a file that is no picture by its name, and for one that cannot be written."""
    if file.suffix not in PICTURES:
        raise InputError(f"--out {str(file)!r}: expected a file that ends with one of {', '.join(PICTURES)}")
    there = file.exists()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
    except OSError as error:
        raise InputError(f"--out {str(file)!r} cannot be written: {error}; give another path") from error
    if not there:
        file.unlink()


def write(found: Pipeline, file: Path, *, most: int = MOST, title: str = "") -> None:
    """The picture; as a page (.html) with its table beside it, which fetches nothing."""
    check_file(file)
    figure = picture(found, most=most, title=title if file.suffix != ".html" else "")
    if file.suffix != ".html":
        with style():
            figure.savefig(file, dpi=200)
        return
    names = ["token", *(stage.adapter or "model" for stage in found.stages)]
    rows = [[html.text(cell) for cell in row] for row in (*_rows(found, most), *_summary(found))]
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><title>{html.text(title)}</title>'
        '<body style="font-family:sans-serif;max-width:70em;margin:2em auto;--paper:#fff">'
        f"<h1>{html.text(title)}</h1>{inline(figure, 'stages', title)}{html.table(names, rows)}</body>\n",
        encoding="utf-8",
    )


def _rows(found: Pipeline, most: int) -> list[list[str]]:
    return [
        [token_name(found.tokens[i]), *(_percent(float(stage.p[i])) for stage in found.stages)]
        for i in found.best(most)
    ]


def _summary(found: Pipeline) -> list[list[str]]:
    stages = found.stages
    cuts = [stage.cut(before) for before, stage in zip((stages[0], *stages), stages, strict=False)]
    return [
        ["tokens left", *(f"{stage.left:,}" for stage in stages)],
        ["entropy, bits", *(f"{stage.entropy:.2f}" for stage in stages)],
        ["cut off", *(_percent(cut) for cut in cuts)],
    ]


def _percent(p: float) -> str:
    return "–" if p == 0 else f"{100 * p:.2f}%" if p >= 5e-5 else "<0.01%"
