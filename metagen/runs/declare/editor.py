"""What an experiment file may hold, as a JSON schema: editors complete and check files by it."""

from __future__ import annotations

from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from metagen.runs.declare import registry
from metagen.runs.declare.registry import Section
from metagen.runs.declare.schema import REHEARSAL
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.definition import PLUGINS, model_of
from metagen.runs.declare.specs.fields import DEFINED
from metagen.runs.declare.study import StudySpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Of an experiment, with the section of a study; as people write it: with short forms, and what may be left out."""
    sections: tuple[Section, ...] = get_args(Section)
    kinds = {
        section: {kind: model_of(section, kind) for kind in registry.kinds(section)} for section in sections
    }
    models: list[type[BaseModel]] = [Experiment, StudySpec, *PLUGINS.values()]
    models += [one for named in kinds.values() for one in named.values() if one is not None]
    ways, whole = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], ref_template="#/$defs/{model}"
    )
    found: dict[str, Any] = whole["$defs"]
    experiment = found.pop("Experiment")
    for section, named in kinds.items():
        plugin = PLUGINS[section]
        known = dict.fromkeys(one for one in named.values() if one is not None and one is not plugin)
        brought = [{"pattern": ":"}, {"enum": sorted(kind for kind, one in named.items() if one is plugin)}]
        other = {"allOf": [ways[plugin, "validation"], {"properties": {"kind": {"anyOf": brought}}}]}
        found[section] = {"anyOf": [*(ways[one, "validation"] for one in known), other]}
    experiment["properties"][REHEARSAL] = {
        "type": "object",
        "description": "What is otherwise in a small run of this file (--rehearse).",
    }
    experiment["properties"]["study"] = ways[(StudySpec, "validation")]
    # Without names, or with `all`, a grid has all that are defined.
    experiment["required"] = [name for name in experiment["required"] if name != "grid"]
    grid = found["GridSpec"]
    grid.pop("required", None)
    for side in ("generators", "strategies"):
        grid["properties"][side] = {"anyOf": [{"const": "all"}, grid["properties"][side]]}
    whole = {"$schema": DIALECT, "title": "An experiment of metagen", **experiment, "$defs": found}
    return dict(_refer(whole))


def _refer(schema: Any) -> Any:
    """The schema, with references in place of what stands for definitions of a section."""
    if isinstance(schema, list):
        return [_refer(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if DEFINED in schema:
        return {"$ref": f"#/$defs/{schema[DEFINED]}"}
    return {name: _refer(one) for name, one in schema.items()}
