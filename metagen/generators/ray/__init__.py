"""Pools of engines on the machines of a Ray cluster, behind one Engine."""

from metagen.generators.ray.crew import Policy as Policy
from metagen.generators.ray.placement import Placement as Placement
from metagen.generators.ray.pool import RayPool as RayPool
from metagen.generators.ray.scaling import Scaling as Scaling
