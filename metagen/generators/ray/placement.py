"""Where an actor may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metagen.errors import InputError


@dataclass(frozen=True, slots=True)
class Placement:
    """What a replica needs of the cluster; by default nothing, and replicas are spread over the nodes.

    num_cpus, num_gpus, resources: of the node that it runs on, and reserved for it.
    bundles: for an engine of several processes, such as one with tensor parallelism over nodes: resources of each of
    them. They are reserved together as a placement group, as close to one another as can be; the replica takes the
    first bundle, and actors that its engine starts take the others. Raises InputError for a negative amount, cores,
    GPUs and memory among resources, an empty bundle, or bundles beside amounts.
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    bundles: tuple[Mapping[str, float], ...] = ()

    def __post_init__(self) -> None:
        if own := {"CPU", "GPU", "memory", "object_store_memory"} & set(self.resources):
            raise InputError(
                f"resources={dict(self.resources)!r}: Ray takes no {' and no '.join(sorted(own))} here; give num_cpus "
                "and num_gpus, or bundles, and as resources what nodes have besides, such as {sandbox: 1}"
            )
        amounts = [("num_cpus", self.num_cpus), ("num_gpus", self.num_gpus), *self.resources.items()]
        for bundle in self.bundles:
            amounts += bundle.items()
            if not bundle:
                raise InputError(
                    f"bundles={self.bundles!r}: one is empty; give its resources, such as {{GPU: 1}}"
                )
        for name, amount in amounts:
            if amount is not None and not 0 <= amount < float("inf"):
                raise InputError(f"{name}={amount!r}: expected a number ≥ 0")
        if self.bundles and (self.num_cpus or self.num_gpus or self.resources):
            raise InputError(
                "bundles already say what a replica needs; leave num_cpus, num_gpus and resources out"
            )

    def __str__(self) -> str:
        if self.bundles:
            return " + ".join(str(dict(bundle)) for bundle in self.bundles)
        asked = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}
        return (
            str({name: amount for name, amount in asked.items() if amount})
            if any(asked.values())
            else "nothing"
        )

    def reserve(self) -> Any:
        """The placement group of the bundles, if there are any."""
        if not self.bundles:
            return None
        from ray.util.placement_group import placement_group

        return placement_group([dict(bundle) for bundle in self.bundles], strategy="PACK")

    def options(self, group: Any) -> dict[str, Any]:
        """Options of the actor. Ray restarts nothing and retries nothing: the pool does."""
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
        if group is None:
            options["scheduling_strategy"] = "SPREAD"
            asked = {"num_gpus": self.num_gpus, "resources": dict(self.resources)}
            if not (self.num_cpus or any(asked.values())):
                return options
            # Ray reserves a core with whatever else is asked for, unless it is told how many.
            return options | {k: v for k, v in asked.items() if v} | {"num_cpus": self.num_cpus or 0}
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        first = dict(self.bundles[0])
        first.pop("object_store_memory", None)
        return options | {
            "num_cpus": first.pop("CPU", 0),
            "num_gpus": first.pop("GPU", 0),
            "memory": first.pop("memory", None),
            "resources": first,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            ),
        }

    def release(self, group: Any) -> None:
        """Give the bundles back."""
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)
