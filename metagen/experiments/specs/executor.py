"""How an experiment is run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from metagen.experiments.specs.fields import Amount, Count, EngineName, Expects, Quantity
from metagen.experiments.specs.parts import Spec

Resources = Annotated[dict[str, Quantity], Expects("a mapping such as {GPU: 1}")]


class PoolSpec(Spec):
    """Replicas of an engine on a cluster, and what each of them needs; see RayPool and Placement."""

    replicas: Count = 1
    num_cpus: Quantity | None = None
    num_gpus: Quantity | None = None
    resources: Resources = Field(default={})
    bundles: list[Resources] = Field(default=[])

    @model_validator(mode="after")
    def _once(self) -> Self:
        if self.bundles and (self.num_cpus or self.num_gpus or self.resources):
            raise ValueError("bundles say what a replica needs; leave num_cpus, num_gpus and resources out")
        return self

    @property
    def needs(self) -> dict[str, Any]:
        """The fields of Placement."""
        return {
            "num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": self.resources,
            "bundles": tuple(self.bundles),
        }  # fmt: skip


class ExecutorSpec(PoolSpec):
    """How the experiment is run; none of it changes a result.

    concurrency: problems in work at a time. With `ray`, every engine runs in a pool of replicas on a cluster: one of
    this machine, or the one at `address`. The other fields are of each pool; `pools` gives engines their own.
    """

    kind: Literal["local", "ray"] = "local"
    concurrency: Count = 64
    address: Annotated[str, Expects("an address such as 10.0.0.1:6379")] | None = None
    pools: dict[EngineName, PoolSpec] = Field(default={})
    deadline: Annotated[float, Field(gt=0), Expects("seconds > 0")] = 600.0
    replacements: Amount = 8

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

    def pool(self, engine: str) -> PoolSpec:
        """The pool of an engine."""
        return self.pools.get(engine, self)
