"""Where answers are found."""

import re

import pytest

from metagen.errors import InputError
from metagen.verifiers.math.extract import SOURCES, check, find

FOUND = [
    # boxes come first
    ("so $x=\\boxed{\\frac{1}{2}}$, not 3. The answer is 4.", "\\frac{1}{2}"),
    ("\\boxed{1} was wrong, hence \\boxed{2}", "2"),
    ("\\boxed{\\text{(C)}}.", "\\text{(C)}"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
    ("\\fbox{7}", "7"),
    ("\\boxed 7 apples", "7"),
    ("\\boxed{10}\\%", "10%"),
    ("$\\boxed{10}$ percent", "10%"),
    ("\\boxed{10\\%}\\%", "10\\%"),
    ("\\boxed{\n\\begin{pmatrix} 0 & 3 \\\\ 0 & -1 \\end{pmatrix}\n}.\n\\end{align*}",
     "\\begin{pmatrix} 0 & 3 \\\\ 0 & -1 \\end{pmatrix}"),
    # several boxes of one answer
    ("$\\boxed{(2, 2)}$ and $\\boxed{(6, 2)}$", "(2, 2), (6, 2)"),
    ("$$\\boxed{k = 45} \\quad \\text{and} \\quad \\boxed{n = 2}$$", "k = 45, n = 2"),
    ("\\boxed{-10}, \\boxed{4}", "-10, 4"),
    ("\\boxed{4}. Check: \\boxed{4}", "4"),
    ("We had \\boxed{3}. This contradicts it, so \\boxed{5}", "5"),
    # what words announce
    ("2+2=5? No.\nThe answer is 4.", "4"),
    ("The final answer is $3\\sqrt{13}$. I hope it is correct.", "3\\sqrt{13}"),
    ("**Answer:** $\\frac{3}{4}$", "\\frac{3}{4}"),
    ("**ANSWER: 82**", "82"),
    ("ANSWER: 013", "013"),
    ("Answer: (A)\n", "(A)"),
    ("Final answer: 12 apples\nThanks!", "12 apples"),
    ("The answer is 5 because 3 + 2 = 5.", "5"),
    ("The answer to the problem is 5.", "5"),
    ("First, 3*4=12.\n#### 1,200", "1,200"),
    ("the answer is $2$ and $3$.", "2, 3"),
    ("The answer is $ \\$18.90 $.", "\\$18.90"),
    ("The answer is \\(x^2\\).", "x^2"),
    ("Answer: \\[ 9 \\]", "9"),
    ("The answer is 28 percent.", "28 percent"),
    ("The answer is $28$%.", "$28$%"),
    ("\\[\n\\textbf{ANSWER: 870}\n\\]", "870"),
    ("\\[\n\\text{ANSWER: } 51\n\\]", "51"),
    ("Final Answer: The largest number of points is 19.", "19"),
    ("Answer:\n\n42", "42"),
    ("The answers are $2$ and $3$.", "2, 3"),
    ("The answer is approximately 3.14.", "3.14"),
    ("The answer is clearly 7.", "7"),
    ("The answer is 5, not 6.", "5"),
    ("The answer is 5</answer>", "5"),
    ("<think>2 + 3</think><answer>5</answer>", "5"),
    # nothing but an answer
    ("\\frac{1}{2}", "\\frac{1}{2}"),
    (" 3/4 ", "3/4"),
    ("x = 5", "x = 5"),
    ("C", "C"),
    ("Yes.", "Yes."),
    # what comes last
    ("It follows that $x \\geq 5$ is the solution.", "x \\geq 5"),
    ("We get $a=1$, and then $b = 2$ for it.", "b = 2"),
    ("so $1$, $2$ and $3$ remain.", "1, 2, 3"),
    ("He pays $1,200.50 in all, $30 more than before: $1,230.50", "$1,230.50"),
    ("5 pages minus 2 pages makes 3 pages", "3"),
    ("It is -7 degrees", "-7"),
    ("There are 12 of 1000.99m² left", "1000.99"),
    ("That makes 25% of all", "25%"),
    ("a probability of 3/8", "3/8"),
    ("With $x=3$ there are 12", "12"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), FOUND, ids=[a[0][:40] for a in FOUND])
def test_an_answer_is_found(text: str, answer: str) -> None:
    assert find(text, pattern=None) == answer


@pytest.mark.parametrize(
    "text", ["", "   ", "I cannot say.", "\\boxed{}", "\\boxed{1", "x2 and XDY2K", "the answer is", "\\boxed"]
)
def test_no_answer(text: str) -> None:
    assert find(text, pattern=None) is None


def test_the_order_of_sources() -> None:
    text = "== 1 ==\n\\boxed{2}\nThe answer is 3.\n4"
    pattern = re.compile("== (.+) ==")
    assert [find(text, pattern=pattern, sources=SOURCES[i:]) for i in (0, 1, 2, 4)] == ["1", "2", "3", "4"]
    assert find(text, pattern=pattern, sources=("last", "boxed")) == "4"
    assert find("5", pattern=None, sources=("boxed", "phrase")) is None


def test_the_last_match_of_a_pattern_counts() -> None:
    pattern = re.compile("A: ?(.*)")
    assert find("A: 1\nA: 2", pattern=pattern) == "2"
    assert find("A: 1\nA: 2", pattern=pattern, ended=False) == "1"
    assert find("A: 1\nA:\n", pattern=pattern, sources=("pattern",)) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{12} is", "12"), ("\\boxed{12", None), ("\\boxed{1}, no: \\boxed{12", "1"), ("Answer: 12", None),
        ("Answer: 12\n", "12"), ("The answer is $1$", "1"), ("The answer is $1", None), ("so 3 + 4 = 7", None),
        ("12", None),
    ],
)  # fmt: skip
def test_what_may_go_on_is_no_answer(text: str, answer: str | None) -> None:
    assert find(text, pattern=None, ended=False) == answer


def test_unknown_source() -> None:
    with pytest.raises(InputError, match=r"'box' is unknown; expected some of pattern, boxed"):
        check(("box",))  # type: ignore[arg-type]  # on purpose
