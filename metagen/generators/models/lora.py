"""LoRA adapters (Hu et al. 2021) in the form in which `peft` saves them, and those that ship: a few MB each.

An adapter adds scale · B A to a matrix of its base, which stays as it is. `adapter_config.json` names the base.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from metagen.errors import ModelError, UnsupportedError
from metagen.generators.directory import read_json

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
FILES: Final = (CONFIG, WEIGHTS)
#: Where adapters that ship are, each in a directory of its name.
HERE: Final = Path(__file__).parent / "adapters"
#: Of a model's config.json, what an adapter says in its own: how it is read as a reward model.
ENTRIES: Final = ("metagen", "metagen_prm", "metagen_orm")
#: Fields that change what an adapter computes, and the values for which this module computes it.
PLAIN: Final[Mapping[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "bias": (None, "none"),
    "lora_bias": (None, False),
    "fan_in_fan_out": (None, False),
    "use_dora": (None, False),
    "alora_invocation_tokens": (None,),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
}
#: Beginnings of the names of initialisations that take something out of the base.
CHANGING: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


@cache
def shipped() -> Mapping[str, Path]:
    """The adapters of this package, by name."""
    return {path.parent.name: path.parent for path in sorted(HERE.glob(f"*/{CONFIG}"))}


def base_of(adapter: Path) -> str:
    """What its configuration calls the model that it was trained on. ModelError if it names none."""
    base = read_json(adapter / CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(
            f"{adapter / CONFIG}: base_model_name_or_path={base!r}, expected the model that it was trained on: a "
            "model directory, or a model's name; mend the field"
        )
    return base


def join(base: Path, adapter: Path, into: Path) -> None:
    """Fill a directory with a base's files and an adapter's, as links where nothing differs."""
    for file in base.iterdir():
        if file.name not in ("config.json", "metagen.json") and file.is_file():
            (into / file.name).symlink_to(file.resolve())
    own = read_json(adapter / CONFIG)
    config = read_json(base / "config.json")
    config |= {name: own[name] for name in ENTRIES if name in own}
    _write(into / "config.json", config)
    _write(into / CONFIG, own | {"base_model_name_or_path": str(base)})
    (into / WEIGHTS).symlink_to((adapter / WEIGHTS).resolve())


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


@dataclass(frozen=True, slots=True)
class Adapter:
    """What a model directory says of the adapter in it. rank: r of its configuration. scale: of the product B A."""

    directory: Path
    rank: int
    scale: float

    @property
    def base(self) -> Path:
        """The directory of the model without it."""
        return Path(base_of(self.directory))


def adapter_of(directory: Path) -> Adapter | None:
    """The adapter in a model directory, if there is one.

    Raises ModelError for a configuration without rank or scale, UnsupportedError for what is more than scale · B A.
    """
    path = directory / CONFIG
    if not path.is_file():
        return None
    config = read_json(path)
    for name, values in PLAIN.items():
        if config.get(name) not in values:
            raise UnsupportedError(
                f"{path}: {name}={config[name]!r}; only plain LoRA is read ({name} {values[0]!r}). Merge the "
                "adapter into its base with peft (merge_and_unload), and give the merged model"
            )
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.startswith(CHANGING):
        raise UnsupportedError(
            f"{path}: init_lora_weights={begun!r} changed the base's own weights when training began; convert the "
            "adapter with peft (path_initial_model_for_weight_conversion of save_pretrained), or merge the two"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise ModelError(f"{path}: r={rank!r}, lora_alpha={alpha!r}, expected numbers > 0; mend the fields")
    return Adapter(directory, rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def parameters_of(directory: Path) -> int:
    """Numbers in the matrices of the adapter in a model directory; 0 if it has none."""
    if not (directory / WEIGHTS).exists():
        return 0
    from safetensors import safe_open  # an optional library, which whoever has adapters has

    with safe_open(directory / WEIGHTS, framework="numpy") as content:
        return sum(math.prod(content.get_slice(name).get_shape()) for name in content.keys())  # noqa: SIM118 - no mapping
