"""Functions that change their formula somewhere: the place counts, and the way they are written does not."""

import pytest

from metagen.verifiers.math.keys import verdict


def key(answer: str) -> str | None:
    return verdict(answer).key


DIFFERENT = [
    ["|x-5|", "5-x", "x-5", "|x-6|", "|x-5.001|", "|5-x|+1"],
    ["\\max(x,5)", "5", "x", "\\min(x,5)", "\\max(x,5,6)", "\\max(x,10^6)", "\\max(x,-10^6)", "\\max(x, 10^6+1)"],
    ["\\lfloor n/10\\rfloor", "\\lfloor n/20\\rfloor", "\\lceil n/10\\rceil", "0", "-1",
     "\\lfloor n/10 + 0.001\\rfloor", "\\lfloor (n+1)/10\\rfloor"],
    ["(x-10)/|x-10|", "-1", "1", "(x-11)/|x-11|", "\\frac{|x-10|}{10-x}"],
    ["\\sqrt{x^2-8x+16}", "4-x", "x-4"],
    ["\\sqrt{x^2-2\\sqrt{2}x+2}", "\\sqrt{2}-x"],
    # nested, and pieces that are bounded on both sides
    ["||x-5|-1|", "|x-5|-1", "|x-5|", "|x-6|+|x-4|-|x-5|", "|4-x|", "|||x-5|-1|-2|"],
    ["\\max(|x-7|, 2)", "|x-7|", "\\max(x-7, 2)", "\\max(7-x, 2)", "7-x"],
    ["|x^2-9|", "9-x^2", "x^2-9", "|x-3|(x+3)", "|x+3|(3-x)"],
    ["|x^3 - 1000|", "1000-x^3", "\\sqrt{(x^3-1000)^2}+1"],
    ["|\\frac{x-5}{x-7}|", "\\frac{5-x}{7-x}", "\\frac{|x-5|}{7-x}"],
    ["|x-1/7|", "x-1/7", "1/7-x", "|x-0.14285|"],
    ["|x-10^6|", "10^6-x", "|x-10^{12}|", "10^{12} - x"],
    ["|x+1000003|", "x+1000003", "|x+1000003|+0.001"],
    ["|x-\\pi^9|", "\\pi^9-x"],
    # other functions that break
    ["\\ln((x-10)^2)", "2\\ln(10-x)", "2\\ln(x-10)"],
    ["|\\ln x - 10|", "10-\\ln x"],
    ["|2^x-1000|", "1000-2^x"],
    ["|e^x-1000|", "1000-e^x"],
    ["\\sqrt[3]{(x-9)^3}", "\\sqrt{(x-9)^2}", "9-x"],
    ["((x-8)^2)^{1/2}", "8-x", "((x-8)^4)^{1/4}+1"],
    ["|x-20|^5", "(20-x)^5"],
    ["\\sin|x-10|", "\\sin(10-x)"],
    ["\\frac{1}{|x-10|}", "\\frac{1}{10-x}"],
    ["\\arctan(\\tan x)", "x", "\\arcsin(\\sin x)", "\\arccos(\\cos x)"],
    ["\\arctan\\frac{1}{x-20}", "\\arctan\\frac{1}{20-x}", "\\arctan(x-20)"],
    ["x \\bmod 3", "x \\bmod 4", "x"],
    ["\\gcd(n,6)", "\\gcd(n,12)", "n"],
    ["\\sqrt{(x-9)(x-8)}", "\\sqrt{x-9}\\sqrt{x-8}"],
    ["\\operatorname{sgn}(x-50)", "-1", "1"],
    # of several variables
    ["|x-y-10|", "10+y-x", "x-y-10", "|y-x-10|"],
    ["\\max(a,b,100)", "100", "\\max(a,b)", "\\max(a,100)", "\\max(b,100)"],
    ["\\max(a-10,0)+\\max(b-10,0)", "0", "\\max(a-10,b-10,0)", "\\max(a+b-20,0)"],
    ["|a|+|b|+|c|-50", "||a|+|b|+|c|-50|", "50-|a|-|b|-|c|"],
    ["\\lfloor \\frac{m+n}{12}\\rfloor", "\\lfloor \\frac{m+n}{13}\\rfloor", "\\lfloor \\frac{m}{12}\\rfloor"],
    # steps
    ["x-\\lfloor x\\rfloor", "x", "x-\\lfloor x-100.5\\rfloor"],
    ["\\lfloor\\sqrt n\\rfloor", "\\lfloor\\sqrt{n+1}\\rfloor", "1"],
    ["\\lfloor n/1000\\rfloor", "\\lfloor n/1001\\rfloor"],
    ["\\lfloor \\frac{n}{2}\\rfloor+\\lceil\\frac{n}{2}\\rceil", "n"],
    # statements
    ["|x-5| + y = 2", "5-x+y=2", "x-5+y=2"],
    ["|x-10|+|y| < 3", "10-x+|y| < 3"],
    ["f(x) = |x-5|", "f(x) = 5-x"],
]  # fmt: skip


@pytest.mark.parametrize("answers", DIFFERENT, ids=lambda answers: answers[0])
def test_functions_that_differ_anywhere_are_told_apart(answers: list[str]) -> None:
    keys = [key(answer) for answer in answers]
    assert None not in keys and len(set(keys)) == len(keys), dict(zip(answers, keys, strict=True))


SAME = [
    ["|x-5|", "|5-x|", "\\max(x-5,5-x)", "\\sqrt{(x-5)^2}", "\\sqrt{x^2-10x+25}", "|x-5|+|x-70|-|70-x|",
     "\\frac{(x-5)^2}{|x-5|}", "f(x)=|x-5|", "\\frac{|2x-10|}{2}", "((x-5)^4)^{1/4}", "-\\min(x-5,5-x)"],
    ["\\max(x,5)", "\\frac{x+5+|x-5|}{2}", "5+\\max(x-5,0)", "\\max(5,x)", "\\max(x,5,4)",
     "\\max(\\min(x,5),\\max(x,5))"],
    ["\\sqrt{x^2-2\\sqrt{2}x+2}", "|x-\\sqrt2|", "|\\sqrt2-x|"],
    ["4-x", "4-x+\\sqrt{(x-9)^2}-|9-x|", "\\sqrt{4-x}^2", "\\sqrt[3]{(4-x)^3}", "\\frac{(4-x)|x|}{|x|}"],
    ["||x-5|-1|", "\\max(|x-5|-1, 1-|x-5|)", "\\sqrt{(|x-5|-1)^2}"],
    ["|x^2-9|", "|x-3||x+3|", "|9-x^2|", "\\sqrt{(x^2-9)^2}"],
    ["(x-10)^8", "\\sqrt{(x-10)^{16}}", "|x-10|^8"],
    ["\\frac{1}{|x-10|}", "|\\frac{1}{x-10}|", "|x-10|^{-1}", "\\sqrt{\\frac{1}{(x-10)^2}}"],
    ["\\operatorname{sgn}(x-50)", "\\frac{x-50}{|x-50|}", "\\frac{|x-50|}{x-50}"],
    ["\\sqrt{x}", "x^{1/2}", "\\frac{x}{\\sqrt x}", "\\sqrt[4]{x}^2"],
    ["\\ln x", "2\\ln\\sqrt x", "\\ln(7x)-\\ln 7", "\\log_2 x \\cdot \\ln 2"],
    ["\\sqrt{e^x}", "e^{x/2}"],
    ["|e^x|", "e^x"],
    ["x^{2/3}", "(x^2)^{1/3}", "\\sqrt[3]{x}^2"],
    ["|x^3-2|", "\\sqrt{x^6-4x^3+4}"],
    ["\\gcd(n,6)", "\\gcd(6,n)"],
    ["x \\bmod 3", "x-3\\lfloor\\frac{x}{3}\\rfloor"],
    ["|\\sin x|", "\\sqrt{1-\\cos^2 x}", "\\sqrt{\\sin^2 x}"],
    ["|\\ln x - 10|", "|10-\\ln x|"],
    ["\\lfloor n/10\\rfloor", "\\lfloor 0.1n\\rfloor", "\\lfloor \\frac{n+10}{10}\\rfloor - 1",
     "-\\lceil -n/10\\rceil"],
    ["\\lfloor\\frac n2\\rfloor+\\lfloor\\frac{n+1}{2}\\rfloor", "\\lfloor n\\rfloor"],
    ["|x-y-10|", "|y-x+10|", "\\max(x-y-10,y-x+10)", "\\sqrt{(x-y)^2-20(x-y)+100}"],
    ["\\max(a,b)", "\\frac{a+b+|a-b|}{2}", "\\max(b,a)", "b+\\max(a-b,0)"],
    ["|x-5|", "|x-5|+y-y"],
    ["|x-5|+y=2", "2|x-5|+2y-4=0", "\\sqrt{(5-x)^2}=2-y"],
]  # fmt: skip


@pytest.mark.parametrize("answers", SAME, ids=lambda answers: answers[0])
def test_a_function_has_one_key_in_all_its_forms(answers: list[str]) -> None:
    keys = {answer: key(answer) for answer in answers}
    assert len(set(keys.values())) == 1 and None not in keys.values(), keys
