"""What a replica sends when it was too late: an answer that crosses its cancellation, or what had ended by then."""

from __future__ import annotations

import pytest

from metagen.errors import EngineError
from metagen.generators.engine import Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.ray.link import _keep
from metagen.generators.ray.messages import Fault, Reply
from metagen.sequence import Sequence

SAMPLE, SHARE = Sample("a", None, 1, finish="eos"), (3, 0, 3, 1)


def kept(reply: Reply) -> GenerateRequest:
    request = GenerateRequest(Sequence.of("x"), (0,), SamplingParams(), 5)
    _keep(request, reply)
    return request


@pytest.mark.parametrize(
    "reply",
    [
        Reply(1, Generated((SAMPLE,), None, 3), None, {}, {0: SHARE}),
        Reply(1, None, Fault.of(EngineError("it ended")), {0: SAMPLE}, {0: SHARE}, [3]),
    ],
)
def test_samples_shares_and_the_tokens_of_the_prefix_are_kept(reply: Reply) -> None:
    request = kept(reply)
    assert (request.ended, request.shares, request.told) == ({0: SAMPLE}, {0: SHARE}, [3])


def test_who_has_the_ids_counts_the_prefix_by_them() -> None:
    assert kept(Reply(1, Generated((SAMPLE,), (1, 2), 2))).told == []
