"""Which answers are one class, and which are not."""

import subprocess
import sys

import pytest

from metagen.verifiers.math.keys import Percent, Verdict, verdict


def key(answer: str, percent: Percent = "hundredths") -> str | None:
    return verdict(answer, percent).key


CLASSES = [
    # numbers
    ["42", "42.0", "42.", "+42", "042", "$42$", "\\(42\\)", "\\[42\\]", "{42}", "\\boxed{42}", "**42**", "(42)"],
    ["-3/4", "-0.75", "-\\frac34", "\\frac{-3}{4}", "-\\dfrac{3}{4}", "\\frac{3}{-4}", "-75\\%", "-.75"],
    ["10080", "10,080", "10,\\!080", "10{,}080", "10\\,080", "10 080", "$10,080", "10^4+80", "1.008e4"],
    ["1234567.5", "1,234,567.5", "1 234 567.5", "\\$1,234,567.50"],
    ["9/5", "1\\frac{4}{5}", "1 4/5", "1 \\frac45", "1.8", "180\\%", "180 percent", "180\\text{ percent}"],
    ["1/3", "0.333333", "0.3333333333333333", "0.\\overline{3}", "\\frac13", "\\frac{1}{3}", "2/6", "1 / 3"],
    ["3/10", "0.30000000000000004", ".3", "30\\%"],
    # a percent sign is of the whole quantity before it
    ["1/200", "1/2%", "\\frac{1}{2}\\%", "0.5%", "\\frac12\\%"],
    ["7/200", "3 1/2%", "3\\frac{1}{2}\\%", "3.5%"],
    ["2/3", "66 2/3%", "66\\frac23\\%", "66\\frac{2}{3}\\text{ percent}"],
    ["2/25", "2^3\\%", "8%", "2 \\cdot 4 \\%"],
    # thousands, whatever brackets stand elsewhere
    ["1000", "1,000 (dollars)", "(1,000)", "10^3"],
    ["1000, 2000", "1,000, 2,000", "\\{1,000, 2,000\\}", "2,000 and 1,000"],
    ["1500, 2500.5", "1,500, 2,500.5", "2,500.5, 1,500"],
    ["11025", "10,000(1.05)^2", "10000 (1.05)^2", "11,025.00"],
    # letters of Greek, and other faces
    ["π", "\\pi", "pi", "$π$", "(π)"],
    ["α", "\\alpha", "alpha"],
    ["Ω", "\\Omega"],
    ["2θ", "2\\theta", "θ + θ"],
    ["∞", "\\infty", "Infinity", "infinity", "inf"],
    ["ℝ", "\\mathbb{R}", "(-\\infty, \\infty)"],
    ["(-\\infty,0)\\cup(0,\\infty)", "\\mathbb{R}\\backslash\\{0\\}", "ℝ∖{0}"],
    ["25", "\\textbf{25}", "\\mathbf{25}", "\\text{25}", "\\boldsymbol{25}", "\\textcolor{red}{25}",
     "\\bf 25", "{\\bf 25}", "\\Large 25", "\\color{blue}25"],
    ["1/2", "{1 \\over 2}", "1 \\over 2", "\\nicefrac{1}{2}", "\\sfrac12"],
    ["53", "\\frac{106^\\circ}{2}", "\\frac{106^{\\circ}}{2}", "53^{ \\circ }"],
    ["60", "60 km/h", "60 sq. ft.", "60 square feet", "60\\text{ km}/\\text{h}"],
    ["x/2", "f^{-1}(x) = x/2", "f^{-1}(x)=\\frac{x}{2}"],
    ["1024", "2^{10}", "2^10", "2**10", "4^5", "32 \\cdot 32", "32 \\times 32", "32*32"],
    ["120", "5!", "\\binom{10}{3}", "{10 \\cdot 12}", "|-120|", "\\lfloor 120.5 \\rfloor", "\\sqrt{14400}"],
    ["3000000", "3 \\cdot 10^6", "3\\times10^{6}", "3{,}000{,}000"],
    # units, currency, degrees, bases
    ["5", "5 cm", "5\\text{ cm}", "5 \\mbox{ cm}^2", "5\\,\\mathrm{m/s}", "5 dollars",
     "\\$5", "5°", "5^\\circ", "5^\\circ C", "€5",
     "5 square inches", "5_8", "5_{16}", "5\\text{ m}/\\text{s}^2", "5\\ \\text{degrees}"],
    # irrational and complex
    ["\\sqrt{12}", "2\\sqrt3", "2√3", "\\frac{6}{\\sqrt{3}}", "12^{1/2}", "sqrt(12)", "2 * 3^0.5"],
    ["\\sqrt{3+2\\sqrt2}", "1+\\sqrt2"],
    ["\\frac{\\sqrt6-\\sqrt2}{4}", "\\sin 15^\\circ", "\\sin\\frac{\\pi}{12}", "\\cos(75°)"],
    ["2\\pi", "2π", "\\pi \\cdot 2", "\\frac{4\\pi}{2}", "2pi"],
    ["\\log_2 3", "\\frac{\\ln 3}{\\ln 2}", "\\frac{\\log 3}{\\log 2}"],
    ["-2", "\\sqrt[3]{-8}", "(-8)^{1/3}", "e^{i\\pi} - 1", "\\log_{10} 0.01", "2\\cos\\pi"],
    ["6-5i", "6 - 5i", "-5i+6", "(2-3i)(27/13+8/13 i)", "6 + 5i^3"],
    ["e", "\\mathrm{e}", "\\exp(1)", "e^1"],
    # expressions
    ["2k+2", "2(k+1)", "2 (1 + k)", "k+k+2", "\\frac{4k+4}{2}", "S = 2k+2", "S_k = 2(k+1)"],
    ["(a+5)(b+2)", "ab+2a+5b+10", "(b+2)(a+5)", "10 + 5b + a(2 + b)"],
    ["\\frac{x^2-1}{x-1}", "x+1", "\\frac{x}{1}+1"],
    ["\\cot x", "\\frac{1}{\\tan x}", "\\frac{\\cos x}{\\sin x}"],
    ["\\cos 2x", "2\\cos^2 x - 1", "1-2\\sin^2 x", "\\cos^2 x-\\sin^2 x"],
    ["\\sin^2 x+\\cos^2 x", "1", "x/x", "x^0"],
    ["x", "\\frac{2x}{2}", "\\frac{x^2}{x}", "$x$", "X", "\\text{x}", "(x)"],
    ["\\ln x", "f(x) = \\ln x", "y = \\ln x", "S = \\ln x", "\\ln x = y"],
    ["2^x", "e^{x \\ln 2}", "2 \\cdot 2^{x-1}"],
    ["|x|", "\\sqrt{x^2}"],
    ["\\frac{1}{3\\sqrt[3]{x}^2}", "\\frac{1}{3x^{2/3}}"],
    ["x_1 + x_2", "x_{2}+x_{1}"],
    ["f(2)+1", "1+f(2)", "f(1+1)+1"],
    ["f(x^5)", "f(x \\cdot x^4)", "f(x^3x^2)"],
    # a sum of names that was asked for, and a chain whose beginning cannot be read
    ["29", "m + n = 29", "$a + b + c = 29$", "AB + B = 29", "29 = p + q", "7.2 x 4 = 29 units",
     "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix} \\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix} = 29", "29^{\\prime} feet"],
    ["x + y = 29", "y + x = 29", "29 = x + y"],
    ["x + y + z = 29"],
    # equations and assignments
    ["5", "x=5", "x = 5", "5=x", "y=5", "f(3)=5", "|AB|=5", "A:B=5", "2+3=5", "a = 2+3 = 5", "x \\approx 5",
     "x \\approx \\sqrt{25} = 5",
     "x - 5 = 0", "2x=10", "\\angle ABC = 5^\\circ", "\\text{Area} = 5"],
    ["y=2x+3", "2x-y+3=0", "2x+3", "y = 3+2x", "f(x) = 2x+3", "4x - 2y = -6"],
    ["x^2-1", "P(x) = x^2 - 1", "p(x) = (x-1)(x+1)", "C(x)=x^2-1"],
    ["x^2/4+y^2/3=1", "3x^2+4y^2=12", "x^2/16+y^2/12=1/4", "12-4y^2 = 3x^2"],
    ["5x-7y+11z+4=0", "-5x+7y-11z=4", "10x - 14y + 22z = -8"],
    ["x = 1/3 \\approx 0.33", "1/3"],
    ["9", "x \\equiv 9 \\pmod{11}", "9 \\pmod{11}"],
    # collections
    ["1,-2", "-2, 1", "\\{1,-2\\}", "\\{-2;1\\}", "1 and -2", "x=1 or x=-2", "x=-2,\\ x=1", "x_1=1, x_2=-2",
     "x \\in \\{-2, 1\\}", "-2\\text{ and }1", "x = 1, -2", "\\{1, -2, 1\\}"],
    ["3\\pm2\\sqrt2", "3+2\\sqrt2, 3-2\\sqrt2", "\\{3-\\sqrt8,3+\\sqrt8\\}", "x = 3 ± 2√2", "3 \\mp 2\\sqrt{2}"],
    ["(3,\\frac{\\pi}{2})", "\\left( 3, \\frac{\\pi}{2} \\right)", "(x,y)=(3,\\pi/2)", "x=3, y=\\pi/2",
     "y=\\pi/2, x=3",
     "\\begin{cases} x = 3 \\\\ y = \\frac{\\pi}{2} \\end{cases}",
     "\\langle 3, \\pi/2\\rangle"],
    ["x=1,y=2 or x=3,y=4", "(1,2),(3,4)", "x_1=1, y_1=2, x_2=3, y_2=4",
     "(3,4),(1,2)", "\\{(1,2),(3,4)\\}", "(1,2)\\text{ and }(3,4)"],
    ["\\begin{pmatrix}-1/3\\\\2/3\\end{pmatrix}", "\\begin{bmatrix} -\\frac13 \\\\ \\frac23 \\end{bmatrix}",
     "\\frac13\\begin{pmatrix}-1\\\\2\\end{pmatrix}", "\\begin{pmatrix}-1\\\\2\\end{pmatrix}/3",
     "\\left[\\begin{array}{c} -1/3 \\\\ 2/3 \\end{array}\\right]"],
    ["[[6,8],[10,12]]", "\\begin{pmatrix}6&8\\\\10&12\\end{pmatrix}",
     "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}+\\begin{pmatrix}5&6\\\\7&8\\end{pmatrix}"],
    # sets of real numbers
    ["(3,4]", "3<x\\le4", "x \\in (3,4]", "4 \\ge x > 3", "\\left(3,4\\right]", "x > 3 and x <= 4"],
    ["(2,\\infty)", "x>2", "\\{x \\mid x > 2\\}", "\\{x \\in \\mathbb{R} : x > 2\\}",
      "2<x", "(2, inf)", "-x < -2", "3x - 1 > 5"],
    ["(-\\infty,1)\\cup(1,\\infty)", "x\\ne1", "\\mathbb{R}\\setminus\\{1\\}", "\\mathbb{R} - \\{1\\}",
     "x<1 or x>1",
     "(1,\\infty)\\cup(-\\infty,1)"],
    ["[-3/2,-1]\\cup[1,3/2]", "1\\leq|z|\\leq\\frac32"],
    ["(-2,2)", "x^2<4", "|x|<2", "-2<x<2"],
    ["(-\\infty,2)\\cup(3,\\infty)", "x^2-5x+6>0", "(x-2)(x-3) > 0", "\\frac{x-2}{x-3} > 0", "|x-\\frac52| > \\frac12"],
    ["[1,5)", "\\sqrt{x-1}<2"],
    ["(-\\infty,-1)\\cup(3,\\infty)", "\\frac{x-3}{x+1} > 0"],
    ["(-\\infty,-9)\\cup[-8,\\infty)", "\\frac{3x+24}{x+9} \\ge 0", "\\frac{-x-8}{-x-9} \\ge 0"],
    ["[1/3,\\infty)", "\\sqrt{3x-1} \\ge 0"],
    ["[\\sqrt2,\\infty)", "\\sqrt{x-\\sqrt2} \\ge 0"],
    ["(-1,0)\\cup(1,\\infty)", "x^3>x", "x > \\frac1x"],
    ["(0, e^2)", "\\ln x < 2"],
    ["x > \\log_2 7", "2^x > 7"],
    ["0", "x^2 \\le 0"],
    ["\\mathbb{R}", "x^2+1>0", "|x| \\ge 0"],
    ["x\\ne1", "(x-1)^2>0", "x^2+1 > 2x"],
    ["x\\ge10", "\\max(x,5) \\ge 10", "\\min(x, 2x-10) \\ge 10"],
    ["[0,2]", "[0,1]\\cup[1,2]", "[0,1)\\cup[1,2]", "[0,3]\\cap[-1,2]"],
    ["\\mathbb{R}", "(-\\infty,\\infty)", "x \\in \\mathbb{R}"],
    ["\\emptyset", "\\{\\}", "\\varnothing"],
    ["x+y<1", "1>x+y", "2x+2y-2<0"],
    # ratios, times, words
    ["3:2", "6:4", "3/2", "3 : 2"],
    ["1:2:3", "2:4:6"],
    ["3:05 pm", "3:05 PM", "3:05 p.m.", "\\text{3:05 pm}"],
    ["\\text{Evelyn}", "Evelyn", "evelyn.", "\\textbf{Evelyn}"],
    ["(C)", "(C) 5", "\\textbf{(C) } \\frac{1}{2}", "\\text{(C)}\\ x = 2",
     "C", "\\text{(C)}", "\\textbf{(C)}", "$C$", "\\boxed{C}"],
    ["yes", "Yes.", "\\text{YES}"],
    ["The midpoints form a regular hexagon", "\\text{The midpoints form a regular hexagon}."],
    ["no solution", "\\text{No solution}"],
    # operations that bind a variable
    ["55", "\\sum_{k=1}^{10} k"],
    ["1/3", "\\int_0^1 x^2\\,dx"],
    ["1", "\\lim_{x \\to 0} \\frac{\\sin x}{x}"],
    ["\\sum_{k=1}^{n} k^2", "\\sum_{j=1}^{n} j^2", "\\sum_{i=1}^{n} i \\cdot i"],
    ["|x-1|+|x-2|+|x-3|", "\\sum_{k=1}^{3} |x-k|", "\\sum_{i=1}^{3} |i-x|"],
    ["120", "\\prod_{k=1}^{5} k", "\\prod_{i=1}^5 i"],
    ["2", "\\sum_{k=0}^{\\infty} \\frac{1}{2^k}", "\\int_0^\\pi \\sin t\\,\\mathrm{d}t", "17 \\bmod 5"],
    ["\\frac{a^2}{2}", "\\int_0^a x\\,dx"],
    ["e", "\\lim_{n \\to \\infty} (1+\\frac{1}{n})^n", "\\sum_{n=0}^\\infty \\frac{1}{n!}"],
    ["F_n = \\sum_{k=0}^{n-1} F_k F_{n-k-1}", "F_n = \\sum_{k=0}^{n-1} F_{n-k-1} F_k"],
]  # fmt: skip


@pytest.mark.parametrize("answers", CLASSES, ids=lambda answers: answers[0])
def test_one_class(answers: list[str]) -> None:
    keys = {answer: key(answer) for answer in answers}
    assert len(set(keys.values())) == 1 and None not in keys.values(), keys


DIFFERENT = [
    ["1", "-1", "0", "10", "1/10", "0.1000001", "i", "-i", "\\infty", "-\\infty", "\\emptyset", "one"],
    # decimals are exact: no closeness, which would not be transitive
    ["\\frac{2^{2020}-1}{2^{2020}}", "1", "1-10^{-40}", "0.9999999999", "0.99999999999"],
    ["0.33", "0.333", "1/3", "0.33333", "33/100000"],
    ["\\sqrt2", "1.41421356", "1.414", "1.41421356237309504880168872421"],
    ["\\pi", "3.14", "22/7", "3.14159265358979", "355/113"],
    ["10%", "10", "1/2%", "1/2"],
    ["room 5", "5", "5, not 6", "6", "5, 6"],
    ["α", "β", "a", "Δ", "Γ"],
    ["(1,500)", "1500"],
    ["\\{\\{1,2\\},\\{3\\}\\}", "\\{1,2,3\\}", "\\{\\{1\\},\\{2,3\\}\\}"],
    ["(1,2)", "(2,1)", "\\{1,2\\}", "[1,2]", "[1,2)", "(1,2]", "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
     "\\begin{pmatrix}1&2\\end{pmatrix}", "(1,2,3)", "12"],
    ["x=1, y=2", "x=2, y=1", "1, 2", "x=1,y=2 or x=2,y=1"],
    ["x+1", "y+1", "X+1", "x-1", "2x+1", "x^2+1", "\\sqrt{x}+1", "x_1+1"],
    ["|x|", "x", "-x", "x|x|"],
    ["x>2", "x\\ge2", "x<2", "x\\ne2", "x=2"],
    ["x^2=4", "x=2", "x^2>4", "x^2\\ge4"],
    ["x^{2020}+1", "x^{2020}", "x^{2019}+1"],
    ["\\log 2", "\\ln 2", "\\log_2 2"],
    ["2^{100000}", "2^{100001}", "2^{100000}-1"],
    ["10^{40}\\sqrt2", "10^{40}\\sqrt2+1", "10^{-40}\\sqrt2", "10^{-120}\\sqrt2", "0"],
    ["e^{\\pi\\sqrt{163}}", "262537412640768744"],
    ["A", "B", "AB", "Anna", "no", "yes"],
    ["3:30", "4:40 pm", "3:30 pm", "3:03"],
    ["f(1)<f(2)", "f(2)<f(1)", "f(1)\\le f(2)"],
    ["\\sum_{k=1}^{3} a_k", "3a_k", "\\sum_{k=1}^{4} a_k", "\\sum_{k=1}^{3} b_k"],
    ["\\sum_{k=1}^{n} k", "\\sum_{k=1}^{n} k^2", "\\sum_{k=1}^{m} k", "\\sum_{k=2}^{n} k", "\\prod_{k=1}^{n} k"],
    ["\\lim_{x \\to 0} \\frac{1}{x}", "\\lim_{x \\to 0} \\frac{2}{x}", "0"],
    ["x^2>5", "x^2>6", "x^3>5", "x^2<5"],
    ["1.5", "1,5", "1.50.2", "15"],
    ["\\sin 30", "\\sin 30^\\circ"],
    # homoglyphs and digits of other scripts are not what they look like
    ["x", "х", "2x"],
    ["3", "4", "٣", "３", "³"],
]  # fmt: skip


@pytest.mark.parametrize("answers", DIFFERENT, ids=lambda answers: answers[0])
def test_different_classes(answers: list[str]) -> None:
    keys = [key(answer) for answer in answers]
    known = [k for k in keys if k is not None]
    assert len(set(known)) == len(known) > 1, dict(zip(answers, keys, strict=True))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("6/4", "3/2"), ("-7", "-7"), ("6-5i", "6-5i"), ("\\sqrt2", "~1.414213562373095048801688724210"[:-1]),
        ("(1, 1/2]", "(1, 1/2]"), ("2,1", "{1, 2}"), ("x>2", "(2, oo)"), ("Even", '"even"'),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "[[1, 2]]"),
    ],
)  # fmt: skip
def test_keys_can_be_read(answer: str, expected: str) -> None:
    assert key(answer) == expected


@pytest.mark.parametrize(
    "answer",
    ["", " ", "$$", "1/0", "\\frac{1}{0}", "0^{-1}", "\\log 0", "()", "1 2", "5 + ", "+", "\\frac{1}", "{", "((1)",
     "\\unknown{5}", "x = ", "= 5", "\\begin{pmatrix}1&2\\\\3\\end{pmatrix}", "٣", "!",
     "3!!", "0^0", "1,00,000", "00,1", "50% 3",
     "\\sqrt(1,2)", "\\lfloor 1,2\\rfloor", "\\sqrt[2,3]{4}", "\\text{}", "1" * 1001],
)  # fmt: skip
def test_unparsable(answer: str) -> None:
    assert verdict(answer) == Verdict(None, "unparsable")


def test_percent_may_be_dropped() -> None:
    assert key("10\\%", "dropped") == key("10", "dropped") == key("10 percent", "dropped") == "10"
    assert key("50\\%") == key("1/2") == "1/2"


def test_keys_are_the_same_in_every_process() -> None:
    answers = ["x+y", "f(2)", "\\sqrt2", "{2,1,a}", "x<y", "yes", "2^{100000}"]
    code = f"from metagen.verifiers.math.keys import verdict; print([verdict(a).key for a in {answers!r}])"
    done = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert done[0] == done[1] == f"{[key(a) for a in answers]}\n"
