"""The random models, made once, and what the device's memory and arithmetic give at best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from benchmarks.gpu import models
from benchmarks.gpu.place import Place, copies, hardware, products
from benchmarks.gpu.row import Found, found

Tasks = Iterator[tuple[str, Callable[[], Iterable[Found]]]]


def tasks(place: Place) -> Tasks:
    for name in models.SHAPES:
        yield f"model {name}", partial(make, place, name)
    yield "device", partial(device, place)


def make(place: Place, name: str) -> Iterable[Found]:
    where = models.directory(place, name)
    size = sum(file.stat().st_size for file in where.glob("*.safetensors")) / 1e9
    yield found(f"random Llama {name}, weights", size, "GB", "bfloat16, on disk")


def device(place: Place) -> Iterable[Found]:
    sheet = hardware(place)
    yield found(
        "memory, bytes copied a second, read and written", copies(place) / 1e12, "TB/s", "median of 7"
    )
    yield found("bfloat16 products of square matrices", products(place) / 1e12, "TFLOP/s", "median of 7")
    yield found(
        "bandwidth that rooflines are drawn with",
        sheet.bandwidth / 1e12,
        "TB/s",
        f"{sheet.name}; measured if no sheet",
    )
