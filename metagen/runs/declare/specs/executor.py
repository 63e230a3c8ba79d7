"""How an experiment is run."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from metagen.runs.declare.specs.fields import EngineName
from metagen.runs.declare.specs.parts import Spec
from metagen.values import Amount, Count, Expects, Quantity


def _placeable(resources: dict[str, float]) -> dict[str, float]:
    from metagen.generators.ray.placement import Placement  # not at the top: the whole pool comes with it

    Placement(resources=resources)
    return resources


Resources = Annotated[
    dict[str, Quantity], Expects("a mapping such as {sandbox: 1}"), AfterValidator(_placeable)
]
Bundle = Annotated[dict[str, Quantity], Expects("a mapping such as {GPU: 1}")]


class NumberedSpec(Spec):
    """A mapping for which a number is short: that of its first field, as `scaling: 8` is {most: 8}."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer", "minimum": 1}, handler.resolve_ref_schema(handler(schema))]}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        return {next(iter(cls.model_fields)): value} if number else value


class ScalingSpec(NumberedSpec):
    """How many replicas there may be, by the load; see Scaling.

    `scaling: 8` is short for {most: 8}. most: replicas at most. load: samples and texts under way that one replica is
    enough for. idle: seconds that fewer replicas must have been enough, before one leaves.
    """

    most: Count
    load: Count = 64
    idle: Annotated[float, Field(ge=0), Expects("seconds ≥ 0")] = 60.0


class PoolSpec(Spec):
    """Replicas of an engine on a cluster, and what each of them needs; see RayPool and Placement.

    replicas: engines on the cluster. scaling: how many there may be, by the load. num_cpus, num_gpus, resources: what
    one replica needs. bundles: what it needs, as parts that may lie on several machines.
    """

    replicas: Count = 1
    scaling: ScalingSpec | None = None
    num_cpus: Quantity | None = None
    num_gpus: Quantity | None = None
    resources: Resources = Field(default={})
    bundles: list[Bundle] = Field(default=[])

    @model_validator(mode="after")
    def _once(self) -> Self:
        if self.bundles and (self.num_cpus or self.num_gpus or self.resources):
            raise ValueError("bundles say what a replica needs; leave num_cpus, num_gpus and resources out")
        if self.scaling is not None and self.scaling.most < self.replicas:
            raise ValueError(
                f"scaling.most is {self.scaling.most}, and replicas, the fewest, {self.replicas}; expected no less"
            )
        return self

    @property
    def most(self) -> int:
        """Replicas at most."""
        return self.replicas if self.scaling is None else self.scaling.most

    @property
    def needs(self) -> dict[str, Any]:
        """The fields of Placement."""
        return {
            "num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": self.resources,
            "bundles": tuple(self.bundles),
        }  # fmt: skip


class ShardsSpec(NumberedSpec):
    """Drivers in actors of their own, each with its share of the problems; what each needs.

    `shards: 4` is short for {count: 4}. count: drivers. num_cpus, resources: what one driver needs.
    """

    count: Count = 1
    num_cpus: Quantity | None = None
    resources: Resources = Field(default={})


class ExecutorSpec(PoolSpec):
    """How the experiment is run; none of it changes a result.

    kind: `ray` runs every engine in a pool of replicas on a cluster: one of this machine, or the one at `address`.
    concurrency: problems in work at a time. The other fields need `ray`. shards: drivers that work on parts of the
    problems; without it this process is the only one. address: of the cluster. pools: by engine, a pool of its own; it
    takes nothing from the fields above, so repeat num_gpus there. deadline: seconds until a replica without an answer
    is given up. replacements: replicas that may take the place of others.
    """

    kind: Literal["local", "ray"] = "local"
    concurrency: Count = 64
    address: Annotated[str, Expects("an address such as 10.0.0.1:6379")] | None = None
    pools: dict[EngineName, PoolSpec] = Field(default={})
    shards: ShardsSpec | None = None
    deadline: Annotated[float, Field(gt=0), Expects("seconds > 0")] = 600.0
    replacements: Amount = 8

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["local", "ray"]}, handler.resolve_ref_schema(handler(schema))]}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """`executor: ray` is short for {kind: ray}."""
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _local(self) -> Self:
        if self.kind == "local":
            for name, field in type(self).model_fields.items():
                default = field.get_default(call_default_factory=True)
                if name not in ("kind", "concurrency") and getattr(self, name) != default:
                    raise ValueError(f"{name} is for pools of engines; give kind: ray, or leave {name} out")
        return self

    @property
    def cluster(self) -> str | None:
        """The address of the cluster, as the file or RAY_ADDRESS has it; None where one starts on this machine."""
        return self.address or os.environ.get("RAY_ADDRESS") or None

    @property
    def elsewhere(self) -> bool:
        """Whether drivers may be on other machines: the cluster has an address, which is not of this machine."""
        host = (self.cluster or "").rpartition("//")[2].partition(":")[0]
        return host not in ("", "127.0.0.1", "localhost", "local")

    @property
    def shares(self) -> int:
        """Into how many parts the problems are dealt."""
        return self.shards.count if self.shards else 1

    def pool(self, engine: str) -> PoolSpec:
        """The pool of an engine."""
        return self.pools.get(engine, self)
