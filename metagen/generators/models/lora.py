"""LoRA adapters (Hu et al. 2021) in the form in which `peft` saves them, and those that ship: a few MB each.

An adapter adds scale · B A to a matrix of its base, which stays as it is. `adapter_config.json` names the base. One
that was trained to classify brings a head of its own, which scores, in place of the base's.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
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
    "trainable_token_indices": (None, []),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "use_qalora": (None, False),
    "use_bdlora": (None, False, {}),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "velora_config": (None,),
}
#: What `peft` calls a task whose head scores, and how the architecture of such a model ends.
SCORING: Final[Mapping[str, str]] = {
    "TOKEN_CLS": "ForTokenClassification",
    "SEQ_CLS": "ForSequenceClassification",
}
#: Modules that `peft` saves whole for these tasks: the head, by the names that it may have.
HEADS: Final = frozenset({"classifier", "score"})
#: Beginning of the names of a head's matrices among the weights.
HEAD: Final = "base_model.model.score."
#: Files by which texts become tokens; an adapter that has some of its own was trained with these.
TOKENIZER: Final = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
#: Beginnings of the names of initialisations that take something out of the base.
CHANGING: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


@cache
def adapters() -> Mapping[str, Path]:
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


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter and no whole model."""
    weights = {file.name for file in directory.glob("*.safetensors")} - {WEIGHTS}
    return (directory / CONFIG).is_file() and not weights


def files_of(adapter: Path) -> list[Path]:
    """The files of an adapter that change what is computed. ModelError if one is missing."""
    for name in FILES:
        if not (adapter / name).is_file():
            raise ModelError(f"{adapter}: no {name}; copy the adapter whole, as peft saves it")
    return [adapter / name for name in (*FILES, *TOKENIZER) if (adapter / name).is_file()]


def join(base: Path, adapter: Path, into: Path) -> None:
    """Fill a directory with an adapter's files, and links to its base's."""
    own_files = files_of(adapter)
    left = {"config.json", "metagen.json", *(file.name for file in own_files)}
    if any((adapter / name).is_file() for name in TOKENIZER):
        left |= set(TOKENIZER)
    for file in base.iterdir():
        if file.name not in left and file.is_file():
            (into / file.name).symlink_to(file.absolute())
    for file in own_files:
        shutil.copyfile(file, into / file.name)
    own = read_json(adapter / CONFIG)
    config = read_json(base / "config.json")
    config |= {name: own[name] for name in ENTRIES if name in own}
    if (ending := head_of(own)) is not None:
        names = config.get("architectures") or [""]
        config["architectures"] = [f"{str(names[0]).partition('For')[0]}{ending}"]
    _write(into / "config.json", config)
    _write(into / CONFIG, own | {"base_model_name_or_path": str(base)})


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def head_of(config: Mapping[str, Any]) -> str | None:
    """How the architecture of a model with this adapter ends, if the adapter brings a head that scores."""
    saved = config.get("modules_to_save") or ()
    return SCORING.get(str(config.get("task_type"))) if saved and HEADS.issuperset(saved) else None


@dataclass(frozen=True, slots=True)
class Adapter:
    """What a model directory says of the adapter in it. rank: r of its configuration. scale: of the product B A.

    scores: whether it brings a head that scores.
    """

    directory: Path
    rank: int
    scale: float
    scores: bool = False

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
    scores = head_of(config) is not None
    if (saved := config.get("modules_to_save")) and not scores:
        raise UnsupportedError(
            f"{path}: modules_to_save={saved!r} with task_type={config.get('task_type')!r}; of whole modules only the "
            f"head of a classifier is read (task_type {' or '.join(SCORING)}, modules_to_save score). Merge the "
            "adapter into its base with peft (merge_and_unload), and give the merged model"
        )
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(CHANGING):
        raise UnsupportedError(
            f"{path}: init_lora_weights={begun!r} changed the base's own weights when training began; convert the "
            "adapter with peft (path_initial_model_for_weight_conversion of save_pretrained), or merge the two"
        )
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    numbers = isinstance(rank, int) and isinstance(alpha, int | float) and not isinstance(rank, bool)
    if not numbers or rank < 1 or not math.isfinite(alpha):
        raise ModelError(f"{path}: r={rank!r}, lora_alpha={alpha!r}, expected numbers > 0; mend the fields")
    return Adapter(directory, rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank), scores)


def shapes_of(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of the adapter in a directory, by name; none if it has none. ModelError if unreadable."""
    if not (directory / CONFIG).exists():
        return {}
    # The header of a safetensors file is its length in eight bytes, and JSON. No library is needed for that.
    file = directory / WEIGHTS
    try:
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        return {name: tuple(one["shape"]) for name, one in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as error:
        raise ModelError(f"{file}: not a readable safetensors file ({error}); copy it again") from None


def check_shapes(directory: Path, base: Mapping[str, tuple[int, ...]]) -> None:
    """ModelError unless each matrix of the adapter in a directory fits one of its base. base: shapes by name."""
    low = {name: shape for name, shape in shapes_of(directory).items() if not name.startswith(HEAD)}
    for name, (rows, columns) in low.items():
        module, _, which = name.removeprefix("base_model.model.").partition(".lora_")
        known = base.get(f"{module}.weight")
        if (
            known is None
            or len(known) != 2
            or known != ((known[0], columns) if which[0] == "A" else (rows, known[1]))
        ):
            raise ModelError(
                f"{directory / WEIGHTS}: {name!r} is [{rows}, {columns}], and {module!r} of the base is "
                f"{list(known) if known else 'not there'}; give the base that it was trained on"
            )


def parameters_of(directory: Path) -> int:
    """Numbers in the matrices of the adapter in a directory; 0 if it has none."""
    return sum(map(math.prod, shapes_of(directory).values()))


def digest_of(directory: Path) -> str:
    """What the adapter in a directory computes, wherever its base lies; empty if there is none. ModelError as above."""
    adapter = adapter_of(directory)
    if adapter is None:
        return ""
    try:
        with (directory / WEIGHTS).open("rb") as stream:
            weights = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(
            f"{directory / WEIGHTS}: cannot be read ({error.strerror}); copy the adapter again"
        ) from None
    return f"{weights} {adapter.scale!r}"
