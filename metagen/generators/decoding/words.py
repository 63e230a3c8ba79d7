"""What sampling parameters say of certain tokens, in the ids of one vocabulary."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from metagen.errors import InputError
from metagen.generators.decoding.adapters import Adapter, Ban
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.engine import SamplingParams

Ids = tuple[int, ...]
#: Parameters that speak of certain tokens.
_SPOKEN = ("logit_bias", "sequence_bias", "dry", "banned", "forced", "min_tokens", "adapters")


@dataclass(frozen=True, slots=True)
class Words:
    """bias: added to the logits of tokens. banned: sequences of which the last token is never drawn behind the others.
    sequences: what is added to the logit of the last token of each, behind the others. breakers: tokens that `Dry` does
    not run across. forced: what a completion begins with. ends: tokens that wait until min_tokens are there. adapters:
    those of other packages.
    """

    bias: tuple[tuple[int, float], ...] = ()
    banned: tuple[Ids, ...] = ()
    forced: Ids = ()
    ends: Ids = ()
    sequences: tuple[tuple[Ids, float], ...] = ()
    breakers: Ids = ()
    adapters: tuple[Adapter, ...] = ()

    @classmethod
    def of(
        cls,
        params: SamplingParams,
        encode: Callable[[str], abc.Sequence[int]],
        decode: Callable[[list[int]], str],
        size: int,
        eos: Iterable[int],
    ) -> Self:
        """encode, decode: ids of a text, and back. size: of the vocabulary. eos: tokens that end a sequence.

        A banned text, and a biased sequence, is taken as it is encoded alone, and behind a space. Raises InputError for
        ids that the vocabulary does not have, for texts that its tokens cannot write, for the logit_bias of a text that
        is not one token, for two biases of one token, and for a forced text that is longer than max_tokens.
        """
        if not any(getattr(params, name) for name in _SPOKEN):
            return cls()

        def check_ids(name: str, ids: Ids) -> Ids:
            if bad := [i for i in ids if not 0 <= i < size]:
                raise InputError(f"{name}: {bad[0]!r} is no id of the vocabulary (0 … {size - 1})")
            return ids

        def to_ids(name: str, text: str) -> Ids:
            if (ids := spell(text, encode, decode, size)) is None:
                raise InputError(f"{name}: the tokens cannot write {text!r}; leave it out, or give ids")
            return ids

        def single_id(one: int | str) -> int:
            ids = (one,) if isinstance(one, int) else to_ids("logit_bias", one)
            if len(ids) > 1:
                raise InputError(
                    f"logit_bias: {one!r} is {len(ids)} tokens, {ids!r}; give texts of one token, or ids"
                )
            return check_ids("logit_bias", ids)[0]

        def ways(name: str, one: Ban) -> list[Ids]:
            """A text as it is encoded alone and, where that differs, behind a space; ids as they are."""
            if not isinstance(one, str):
                return [check_ids(name, tuple(one))]
            alone = to_ids(name, one)
            behind = None if one[0].isspace() else spell(" " + one, encode, decode, size)
            return [alone] if behind in (None, alone) else [alone, behind]

        banned = [ids for one in params.banned for ids in ways("banned", one)]
        sequences: dict[Ids, float] = {}
        for sequence, value in params.sequences:
            for ids in ways("sequence_bias", sequence):
                if ids in sequences:
                    raise InputError(
                        f"sequence_bias: {sequence!r} is {ids!r}, which has a bias already; give it one"
                    )
                sequences[ids] = float(value)
        breakers = [] if params.dry is None else [encode(text) for text in params.dry.breakers]
        text = params.forced
        forced = (
            (to_ids("forced", text) if text else ()) if isinstance(text, str) else check_ids("forced", text)
        )
        if len(forced) > params.max_tokens:
            raise InputError(
                f"forced={text!r}: it is {len(forced)} tokens, and max_tokens={params.max_tokens!r} cuts it; give "
                f"max_tokens ≥ {len(forced)}, or force less"
            )
        bias: dict[int, float] = {}
        for which, value in params.biases:
            if (token := single_id(which)) in bias:
                raise InputError(
                    f"logit_bias: {which!r} is token {token}, which has a bias already; give it one"
                )
            bias[token] = float(value)
        ends = (() if params.ignore_eos else tuple(sorted(eos))) + params.stop_token_ids
        return cls(
            tuple(bias.items()),
            tuple(dict.fromkeys(banned)),
            forced,
            tuple(dict.fromkeys(ends)) if params.min_tokens else (),
            tuple(sequences.items()),
            tuple(dict.fromkeys(ids[-1] for ids in breakers if ids and 0 <= ids[-1] < size)),
            params.adapters,
        )

    def check(self, completion: abc.Sequence[int]) -> None:
        """InputError for a completion that begins otherwise than it is forced to."""
        begun = tuple(completion[: len(self.forced)])
        if begun != self.forced[: len(begun)]:
            raise InputError(
                f"forced={self.forced!r}: the prefix begins with the tokens {begun!r}; continue one that was written "
                "under it, or leave forced out"
            )


def spell(
    text: str, encode: Callable[[str], abc.Sequence[int]], decode: Callable[[list[int]], str], size: int
) -> Ids | None:
    """The ids of a text behind other text; None where they do not write it: an unknown token stands for whatever has no
    other.
    """
    ids = tuple(encode(text))
    if not ids or not all(0 <= i < size for i in ids):
        return None
    # Some tokenizers put a space before a text that they encode, which is not there behind other text.
    head, both = tuple(encode("\n")), tuple(encode("\n" + text))
    if both[: len(head)] == head and all(0 <= i < size for i in both):
        wanted = decode(list(head)) + text
        if decode([*head, *ids]) != wanted == decode(list(both)):
            return both[len(head) :]
    # They drop it when they decode.
    back = decode(list(ids))
    return ids if text in (back, " " + back) else None


def nothing_left(params: SamplingParams, problem: str, after: int) -> InputError:
    """For a row of which all that restricts it together leaves no token.

    problem: its name; empty where it has none. after: tokens of the completion so far.
    """
    names: tuple[str, ...] = ("grammar", "banned", "no_repeat_ngram", "min_tokens", "forced", "adapters")
    if isinstance(params.search, ConstrainedBeamSearch):
        names = (*names, "search")
    causes = [f"{name}={getattr(params, name)!r:.80}" for name in names if getattr(params, name)]
    causes = causes or ["the parameters"]
    where = f"problem {problem!r}: " if problem else ""
    return InputError(
        f"{where}after {after} tokens of the completion no token is left that {' and '.join(causes)} allow and the "
        "model gives any probability; allow more"
    )
