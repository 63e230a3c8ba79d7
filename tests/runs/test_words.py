"""How numbers are said."""

from __future__ import annotations

from math import inf, nan

from metagen.runs import words


def test_costs_have_units_and_modelled_ones_say_so() -> None:
    assert words.with_unit(3.2e9, "flops") == "3.2G FLOPs"
    assert words.with_unit(0.5, "latency:h200") == "0.5 modelled seconds of waiting on h200"
    assert words.axis("roofline:laptop") == "modelled seconds of work on laptop per problem"
    assert words.unit("physical") == "physical"


def test_shares_and_differences_have_their_intervals_where_there_are_any() -> None:
    assert words.with_interval(0.412, 0.38, 0.44) == "41.2% [38.0, 44.0]"
    assert words.with_interval(0.412, 0.38, 0.44, 0.0153) == "41.2% ±1.5 [38.0, 44.0]"
    assert words.with_interval(0.412, nan, nan) == "41.2%" and words.share(nan) == "–"
    assert words.difference(-0.032, -0.051, 0.004) == "−3.2 [−5.1, +0.4]"
    assert words.difference(0.032, nan, nan) == "+3.2" and words.difference(nan, nan, nan) == "–"


def test_zero_and_infinity_are_no_bounds() -> None:
    assert words.within(3.0, 8.0) == "3 to 8"
    assert words.within(0.0, 8.0) == "below 8" and words.within(3.0, inf) == "above 3"
    assert words.within(0.0, inf) == "without bounds" and words.within(nan, 8.0) == "unknown"
    assert words.within(2e9, 3e9, lambda x: words.with_unit(x, "flops")) == "2G FLOPs to 3G FLOPs"


def test_clauses_become_sentences() -> None:
    assert words.lines(["at 3 it is", "", "Yes"]) == ("At 3 it is.", "Yes.")
    assert words.sentences(["at 3 it is", "yes"]) == "At 3 it is. Yes."


def test_lists_end_in_and() -> None:
    assert [words.join_words(list("abc")[:k]) for k in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_share_of_a_thousand_resamples_is_never_certain() -> None:
    assert [words.often(v) for v in (1.0, 0.972, 0.0, nan)] == ["over 99%", "97%", "under 1%", "–"]
    assert words.win_share(1.0, 3) == " (in over 99% of resamples)"
    assert words.win_share(0.972, 3) == " (in at least 97% of resamples)"
    assert words.win_share(0.972) == " (in 97% of resamples)"
