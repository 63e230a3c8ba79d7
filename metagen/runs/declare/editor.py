"""What an experiment file may hold, as a JSON schema: editors complete and check files by it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from metagen.runs.declare import registry
from metagen.runs.declare.schema import REHEARSAL
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.definition import model_of
from metagen.runs.declare.specs.fields import DEFINED
from metagen.runs.declare.study import StudySpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Of an experiment, with the section of a study; as people write it: with short forms, and what may be left out."""
    rules = list(filter(None, (model_of("answers", name) for name in registry.kinds("answers"))))
    models: list[type[BaseModel]] = [Experiment, StudySpec, *rules]
    (ways, whole) = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/$defs/{model}"
    )
    found: dict[str, Any] = whole["$defs"]
    experiment = found.pop("Experiment")
    brought = {"properties": {"kind": {"pattern": ":"}}, "required": ["kind"]}
    found["AnswerRule"] = {"anyOf": [*(ways[rule, "validation"] for rule in rules), brought]}
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
        section = schema[DEFINED]
        rule = section == "answers"
        return {"$ref": "#/$defs/AnswerRule" if rule else f"#/properties/{section}/additionalProperties"}
    return {name: _refer(one) for name, one in schema.items()}
