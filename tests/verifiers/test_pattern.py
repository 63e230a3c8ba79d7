"""What a pattern finds: the last match, unless it may go on."""

import pytest

from metagen.errors import InputError
from metagen.verifiers.pattern import last_match, one_group

LINE = one_group("pattern", r"^A:(\d+)?")


@pytest.mark.parametrize(
    ("text", "ended", "found"),
    [
        ("A:1\nA:2", True, "2"), ("A:1\nA:2", False, "1"), ("A:1\nA:2\n", False, "2"), ("B:1", True, None),
        ("A:1\nA:", True, None),
    ],
)  # fmt: skip
def test_the_last_match_counts_unless_the_text_was_cut_off_there(
    text: str, ended: bool, found: str | None
) -> None:
    assert last_match(LINE, text, ended=ended) == found


def test_a_pattern_has_one_group() -> None:
    with pytest.raises(InputError, match=r"reference='\(a\)\(b\)' has 2 groups; expected one"):
        one_group("reference", "(a)(b)")
    with pytest.raises(InputError, match="is not a regular expression: missing"):
        one_group("pattern", "(a")
