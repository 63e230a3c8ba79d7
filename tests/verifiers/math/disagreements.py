"""Pairs, by the ends of their texts, that we and math-verify 0.9 judge differently, by reason."""

DISAGREEMENTS = {
    "A percentage is its hundredth": [
        ("10%", "10"),
        ("10\\%", "10"),
        ("$10$", "$x \\ge \\frac{11}{10} = 1.1$, and $r = x - 1 = \\boxed{10}\\%$."),
        ("$10$", " A = .9A$. Thus, the area decreased by $\\boxed{10}$ percent."),
    ],
    "A comma between digits separates thousands or elements, never decimals": [
        ("1,22", "1.22"),
        ("2.74", "Soucis : 2,74 $ a.."),
        ("1000.99", "1000,99"),
    ],
    "Values under different names are in the order of the names": [
        ("\\boxed{x = -5,\\ p = \\frac{14}{3}}", "$\\boxed{-5, \\frac{14}{3}}$"),
    ],
    "A tuple has an order, a set has none": [
        ("$(1,3)$", "${1,3}$"),
    ],
    "An inequality is its set of solutions, on either side": [
        ("$x \\in [-2,7]$", "$-2 \\\\le x \\\\le 7$"),
    ],
    "A box takes precedence over an announcement in words": [
        ("$10455$", " Answer: The final answer is $10,455$. I hope it is correct."),
    ],
    "The last announcement takes precedence over the last formula or number": [
        ("$005$", "nal answer ANSWER: 5 Therefore, the sum of $m$ and $n$ is 5."),
    ],
    "A label in a box is not part of the answer": [
        ("$954$", " \\( p + q = 715 + 239 = 954 \\) --- \\[ \\boxed{ANSWER: 954} \\]"),
        ("$352$", "t{Remainder is } 352 \\] --- \\[ \\boxed{\\text{ANSWER: 352}} \\]"),
    ],
    "Boxes with only words such as `and` and a comma between them are one answer": [
        ("\\boxed{1} and and and or thus but \\boxed{2} and \\boxed{3}", "$\\boxed{2,3}$"),
    ],
    "Blanks may follow a unit": [
        ("$864 \\mbox{ inches}^2$", "The answer is $ 864 \\mbox{ inches}^2 $."),
        ("$15\\mbox{ cm}^2$", "The answer is $ 15\\mbox{ cm}^2 $."),
    ],
    "Answers are announced in many languages": [
        ("C", "réponse est C non A"),
    ],
    "LaTeX needs no delimiters": [
        ("918\\frac{1}{2}", "918.5"),
        ("\\frac{1}{3}", "\\dfrac{1}{3}"),
        ("\\frac{3}{4}i", "\\frac34i"),
    ],
}
