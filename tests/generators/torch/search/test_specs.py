"""What is no search, and which search a request cannot have."""

from collections.abc import Callable

import pytest

from metagen.errors import InputError
from metagen.generators.decoding.search import (
    MOST_PHRASES,
    SEARCHES,
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    SearchSpec,
    StochasticBeamSearch,
)
from metagen.generators.engine import SamplingParams
from metagen.generators.torch.search import make_search


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamSearch(0), r"beam search: width=0: expected an integer ≥ 1"),
        (lambda: BeamSearch(True), r"width=True: expected an integer"),
        (lambda: BeamSearch(alpha=-1), r"alpha=-1: expected a number ≥ 0"),
        (lambda: BeamSearch(alpha=float("nan")), r"alpha=nan"),
        (
            lambda: BeamSearch(early_stopping="never"),  # type: ignore[arg-type]
            r"early_stopping='never': expected one of filled, estimate, bound",
        ),
        (lambda: BeamSearch(score="raw"), r"score='raw': expected one of adapted, model"),  # type: ignore[arg-type]
        (
            lambda: DiverseBeamSearch(6, groups=4),
            r"groups=4 do not divide width=6; expected one of 1, 2, 3, 6",
        ),
        (lambda: DiverseBeamSearch(6, groups=0), r"groups=0: expected an integer ≥ 1"),
        (lambda: DiverseBeamSearch(diversity=-0.1), r"diversity=-0.1: expected a number ≥ 0"),
        (lambda: DiverseBeamSearch(diversity=float("inf")), r"diversity=inf"),
        (lambda: ConstrainedBeamSearch(), r"phrases=\(\): expected a tuple of texts"),
        (lambda: ConstrainedBeamSearch(phrases="a"), r"phrases='a': expected a tuple"),  # type: ignore[arg-type]
        (lambda: ConstrainedBeamSearch(phrases=("a", "")), r"phrase '': expected a text"),
        (lambda: ConstrainedBeamSearch(phrases=((1, 2.0),)), r"phrase \(1, 2.0\)"),  # type: ignore[arg-type]
        (lambda: ConstrainedBeamSearch(phrases=("a", "a")), r"phrase 'a' is given twice"),
        (
            lambda: ConstrainedBeamSearch(phrases=tuple(map(str, range(MOST_PHRASES + 1)))),
            rf"{MOST_PHRASES + 1} phrases; expected {MOST_PHRASES} at most",
        ),
        (lambda: StochasticBeamSearch(-2), r"stochastic_beam search: width=-2"),
        (lambda: ContrastiveSearch(k=0), r"contrastive search: k=0"),
        (lambda: ContrastiveSearch(alpha=1.2), r"alpha=1.2: expected a number in \[0, 1\]"),
    ],
)
def test_what_is_no_search(make: Callable[[], SearchSpec], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("kind", SEARCHES)
def test_what_a_model_or_request_has_no_room_for(kind: str) -> None:
    spec = SEARCHES[kind](phrases=("a",)) if kind == "constrained_beam" else SEARCHES[kind]()
    spec.check(1, spec.rows)
    with pytest.raises(InputError, match=r"above the vocabulary of .* tokens; give"):
        spec.check(1, spec.rows - 1)
    spec.check(spec.most, 100)
    with pytest.raises(InputError, match=rf"n={spec.most + 1}: a {kind} search"):
        spec.check(spec.most + 1, 100)


def test_phrases_that_the_model_cannot_write() -> None:
    """Ids that there are not, and texts that become another: "é" is the unknown token, 3."""
    for phrases, says in ((("é",), "cannot write the phrase 'é'"), (((3, 9),), r"phrase \(3, 9\): .*0 … 7")):
        spec = ConstrainedBeamSearch(phrases=phrases)
        with pytest.raises(InputError, match=says):
            make_search(spec, lambda text: (3,), lambda ids: "<unk>" * len(ids), 8, 20, 0)


def test_searches_name_themselves_in_fingerprints() -> None:
    """Equal parameters have equal fingerprints, others have others, and without a search there is none in it."""
    assert "search" not in SamplingParams().fingerprint
    specs: list[SearchSpec] = [
        BeamSearch(), BeamSearch(5), DiverseBeamSearch(), ConstrainedBeamSearch(phrases=("a",)), StochasticBeamSearch(),
        ContrastiveSearch(),
    ]  # fmt: skip
    assert len({SamplingParams(search=spec).fingerprint for spec in specs}) == len(specs)
    assert (
        SamplingParams(search=BeamSearch(5)).fingerprint == SamplingParams(search=BeamSearch(5)).fingerprint
    )
