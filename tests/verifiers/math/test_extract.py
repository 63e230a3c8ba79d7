"""Where answers are found."""

import re
from time import process_time

import pytest

from metagen.errors import InputError
from metagen.verifiers.math.extract import SOURCES, check, find
from metagen.verifiers.math.keys import verdict

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
    ("That gives $10$.\n\nThis is $\\boxed{}$", "10"),
    ("It is $446$, which is a number in base $8$.", "446"),
    ("It is the product $100$. Such an answer is not a simple sum", "100"),
    ("It must be $C$.", "C"),
    # an announcement that its sentence takes back; a name in place of a value; a plan with its result
    ("The answer is 5.\n\nThe answer is 7, which is not correct.", "5"),
    ("The answer is 7, but that is wrong. It is 8", "8"),
    ("The answer is 7, which is not prime.", "7"),
    ("The answer is 7, but there is another one. So it is 9", "9"),
    ("We have $f^{-1}(6) = 1$, which is the inverse of $f^{-1}$.", "f^{-1}(6) = 1"),
    ("We need to find the sum, which is 3 + 4 = 7.", "7"),
    ("When $x = 2$, the value is 7.", "7"),
    ("If he sells 3, he has 5.\nIf he sells 4, he has 9 in all.", "9"),
    ("There are 3 of them. However, 2 are equal, so there are 2", "2"),
    # a result, and what its sentence says of it
    ("That makes 3 x 2 = 6 feet, which is the answer for 3 inches.", "6"),
    ("It is $10 - 1 = 9,$ which is the remainder when $10^x = 9$ is divided by $10.$", "10 - 1 = 9"),
    ("The largest value is $1$, which occurs when $x = 0$.", "1"),
    ("She has 2 bags of 6, which is a total of 12.", "12"),
    ("The price is $5, which is the price of one, so the total is 15", "15"),
    ("There are $3^5$ ways to assign $5$ people to $3$ offices.", "3^5"),
    ("There are 5 apples in each of 3 bags, which makes 15", "15"),
    ("So it leaves a remainder of 4 when divided by 12.", "4"),
    ("So, $b = 1$ is the only possible value of $b$.", "b = 1"),
    ("The answer is the product of all factors, which is $2 \\cdot 6 = 12$.", "2 \\cdot 6 = 12"),
    ("The answer is 28 feet, and it is the length of the path.", "28 feet"),
    ("So the final result is $9$, as we have seen.", "9"),
    # words before and behind an answer, a formula left open, several values
    ("The final answer is either 1.", "1"),
    ("So the final answer is \\boxed{} 1200.", "1200"),
    ("The answer is 10.\n\nThe above answer is the best one and can be had by using a function.", "10"),
    ("It is $a = 2. So the value of $w$ is $2i$.", "2i"),
    ("The roots are $a = 1,$ $b = 2,$ and $c = 3.$", "a = 1, b = 2, c = 3."),
    ("The divisors of it are 1, 2, 3, and 6.", "1, 2, 3, and 6"),
    # derivations
    ("\\begin{align*} x &= 2 \\cdot 79 \\\\ The area of it is 158 square units. \\end{align*}", "158"),
    ("$$\\begin{aligned} v &=& 1 + 1 \\\\ &=& 2 \\end{aligned}$$", "2"),
    ("\\begin{align*}\nx &= 3 + 4 \\\\\n&= 7.\n\\end{align*}", "7."),
    ("\\begin{align*} n &\\equiv 30 \\\\ &\\equiv 3 \\end{align*}", "3"),
    ("so $n! = 2 \\cdot 30 = 60$ and $m! = 60 \\cdot 3 = 180$", "m! = 60 \\cdot 3 = 180"),
    ("As we know, 3^2 + 1 = 2^3 + 2^1", "2^3 + 2^1"),
    ("The answer is $\\boxed{2 + 3 = 5$.", "2 + 3 = 5"),
    ("The answer is 7.\n[asy]\nlabel(\"$5$\", (0, 1), S);\n[/asy]", "7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), FOUND, ids=[a[0][:40] for a in FOUND])
def test_an_answer_is_found(text: str, answer: str) -> None:
    assert find(text, pattern=None) == answer


@pytest.mark.parametrize(
    ("text", "key"),
    [
        # a currency sign opens no formula that the next one closes
        ("The answer is $18. She sells 9 eggs for $2 each.", "18"),
        ("The answer is $10 + $8 = $18.", "18"),
        ("**Answer: $18**\n\nCheck: 9 × $2 = $18", "18"),
        ("The answer is $5$ since $x = 2$ holds.", "5"),
        ("The answer is $12 cm$ in all.", "12"),
        # what is said of an answer is none
        ("#### 18\n\nCheck: 9*2 = 18. So the answer is correct.", "18"),
        ("The answer is as follows:\n\n18", "18"),
        ("The total is 18.\nThe answer is reasonable.", "18"),
        # headings in Markdown
        ("#### Step 2: Calculate the total cost\n3 × 6 = 18\nSo he pays 18 dollars.", "18"),
        ("#### 2. Total cost\nHe pays 18 dollars.", "18"),
        ("#### Conclusion\nShe makes 18 dollars.", "18"),
        ("#### Final Answer\n18", "18"),
        ("9 * 2 = 18\n#### 18", "18"),
        ("9 * 2 = 18\n####18", "18"),
        # exclamations
        ("So the answer is 18!", "18"),
        ("Answer: 18 eggs!", "18"),
        ("The answer is 18! Well done.", "18"),
        ("The answer is $5!$", "120"),
        ("The answer is \\boxed{5!}", "120"),
        # plain sentences
        ("Answer: James runs 540 meters", "540"),
        ("Answer: Kylar pays $64", "64"),
        ("Final Answer: She earned $60", "60"),
        ("Answer: approximately 18", "18"),
        ("Answer: about 18 minutes", "18"),
        ("Answer: a total of 18 eggs", "18"),
        ("The answer is 18 dollars a day.", "18"),
        ("The answer is $18 a day.", "18"),
    ],
)
def test_answers_as_chat_models_write_them(text: str, key: str) -> None:
    assert read(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "I cannot say.", "\\boxed{}", "\\boxed{1", "x2 and XDY2K", "the answer is", "\\boxed",
        # suppositions, names, and what a conclusion in words follows from
        "It is known that it is true for all $x$.", "We look for an $x$ such that $(x-5)^3 = 0$.",
        "The point lies on the side through $F$.", "It is $b^2 - 4ac \\geq 0$, so there are no solutions.",
        "It is surjective if $f(a) = f(b)$, so the function is injective.", "It is near the square root of 64.",
        "We count:\n- dog (2)\n- cat (1)",
        # what repeats the question, what is to be done, parts of a thing, one case of several, what was left for more
        "This problem involves finding the area of a triangle with sides of $2$ and $4$.",
        "To find the total, we need to multiply 5 by 3.", "Let's calculate the sum of 5 and 3.",
        "There are vertices of the triangle with sides of length $2\\sqrt{52}$, which is odd.",
        "When $a = 1$, it is 3.\n\nWhen $a = 2$, it is 5.",
        "Thus there are 3 values.\n\nHowever, this can be simplified.",
        "This is an equation in the form $(a+b)(a-b)^2$.", "You can multiply it by the area of $\\triangle{RST}$.",
        "The other triangle is $\\triangle BAD$.", "We have $x = 3$. The point is $P'$.",
        "The point is reflected across the line $y = 2$.", "It is undefined at $x = 2$.",
        "It is a case of the equation $n = 3$.", "It is a polynomial of degree 3.",
        "Step 3: Divide both sides of the equation by $x + 4$", "Determine the number of dogs and of the pet (1 cat)",
        "The answer is:\n[asy]\nlabel(\"$5$\", (0, 1), S);",
    ],
)  # fmt: skip
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


def test_a_text_full_of_signs_takes_no_longer() -> None:
    for piece in (
        "= ^ ", "= 1^1 ", "$x$ ", "there are 5 a to ", "is 5, which is the ", "\\begin{align} ", "[asy] ",
        "we can find ", "\\boxed{", ". 5\n",
    ):  # fmt: skip
        began = process_time()
        find(piece * (20_000 // len(piece)), pattern=None)
        assert process_time() - began < 2, piece


def test_unknown_source() -> None:
    with pytest.raises(InputError, match=r"'box' is unknown; expected some of pattern, boxed"):
        check(("box",))  # type: ignore[arg-type]  # on purpose


#: Keys of what is found: sentences in place of answers, quantities in sentences, boxes with words between them.
KEYS = [
    ("Answer: There are 12 apples.", "12"), ("Final Answer: The largest n is 34.", "34"),
    ("\\[ \\text{ANSWER: 434} \\]", "434"), ("\\boxed{1} papers and \\boxed{2} bins", "{1, 2}"),
    ("14 {,} 916", "14916"), ("\\boxed{14 {,} 916}", "14916"), ("So $14 {,} 916$ it is", "14916"),
    ("Answer: $14 {,} 916$", "14916"), ("Answer: 14 {,} 916", "14916"), ("The total is 14 {,} 916.", "14916"),
    ("that makes 14{,}916 in all", "14916"), ("that makes 14\\,916 in all", "14916"),
    ("First 5, then 7. Answer: Therefore, she has 1,200 dollars.", "1200"),
    ("Answer: He arrives at 10 AM.", "\"10:00 am\""), ("Answer: The city has 3 million people.", "3000000"),
    ("Answer: It takes 3 hours and 20 minutes.", "\"3 hour 20 minute\""),
    ("It takes 3 hours and 20 minutes.", "\"3 hour 20 minute\""),
    ("So the city has 3.5 million people.", "3500000"), ("He left at 6:30 p.m.", "\"6:30 pm\""),
    ("She arrives at 10:45.", "\"10:45\""), ("Answer: There are no solutions.", "\"there are no solutions\""),
    ("\\boxed{1} apple, \\boxed{2} pears", "{1, 2}"), ("\\boxed{3} is wrong and \\boxed{5} is right", "5"),
    ("\\boxed{x=1} or \\boxed{x=2}", "{1, 2}"), ("$\\text{ANSWER: } 51$", "51"),
    ("$$\\textbf{Final Answer: 51}$$", "51"), ("\\(\\text{Answer: 5}\\)", "5"),
    ("The answer is that 12 apples remain.", "12"), ("The final answer is therefore: 12", "12"),
    ("Final answer is $x = 5$ dollars.", "5"), ("ANSWER = 5", "5"), ("Answer - 5", "5"), ("Answer — 5", "5"),
    ("**Final Answer**\n\n12", "12"), ("### Final Answer\n$12$", "12"),
    ("**Final answer**: The value is $\\frac{3}{4}$.", "3/4"), ("Answer: the probability is 3/8", "3/8"),
    ("Answer: x is 5 and y is 6", "6"), ("72000 / 18 = 4000千克", "4000"), ("The ratio is 2:3.", "2/3"),
    ("She waits 5 and a half hours.", "\"5 and a half\""), ("It grew by 1.5 thousand.", "1500"),
    ("There are 1\u202f200 apples.", "1200"),
    ("Answer: $\\frac{1}{2}$ million dollars", "500000"),
    ("So it costs \\boxed{3} million dollars.", "3000000"),
    ("It is $3.5$ billion.", "3500000000"), ("We meet at $10$ AM.", "\"10:00 am\""),
    ("at \\boxed{10:30} p.m.", "\"10:30 pm\""),
    ("Answer: $3$ hours and $20$ minutes", "\"3 hour 20 minute\""),
    ("He runs $3$ hours $20$ minutes, at $5$ miles an hour.", "5"),
    ("That is $3$ hours $20$ minutes.", "\"3 hour 20 minute\""),
    ("\\boxed{3} hours and \\boxed{20} minutes", "\"3 hour 20 minute\""), ("Answer: \\(5\\) thousand", "5000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key"), KEYS)
def test_what_is_found_says_what_the_text_says(text: str, key: str) -> None:
    assert read(text) == key


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("She needs \\boxed{3} gross of pencils.", "3 gross"),
        ("So that is $3$ gross.", "3 gross"),
        ("So that is 3 gross, I think.", "3 gross"),
        ("Her \\boxed{500} gross income is low.", "500"),
        ("It costs \\boxed{5} lakh rupees.", "500000"),
        ("It has \\boxed{3} mln inhabitants, or 3 quintillion.", "3 million"),
        ("There is 3 ppm of it.", "3 ppm"),
        ("It is $\\boxed{41}^\\circ F$ there.", "41°F"),
        ("It is $\\boxed{41}^{\\circ}\\text{F}$ there.", "41°F"),
        ("It is $\\boxed{41}^\\circ$F there.", "41°F"),
        ("It is \\boxed{41} degrees Fahrenheit there.", "41°F"),
        ("It is $41$ °F there.", "41°F"),
        ("It is -41.5°F there.", "-41.5°F"),
        ("It is 41 Kelvin there.", "41"),
        ("It is \\boxed{41}^\\circ C there.", "41"),
        ("It is 41 degrees Celsius there.", "41"),
        ("That makes 3 sixteenths of it.", "3 sixteenths"),
        ("It rose by 3 basis points in all.", "3 basis points"),
        ("It rose by \\boxed{3} percentage points.", "3 percentage points"),
        ("It rose by 3 percent in all.", "3%"),
        ("(5°C, 6°C)", "(5, 6)"),
        ("(5°F, 6 °F)", "(5°F, 6°F)"),
        ("The angle is 41° for that reason.", "41"),
    ],
)
def test_a_number_takes_along_what_makes_another_of_it(text: str, answer: str) -> None:
    assert read(text) == verdict(answer).key


#: Of languages, all of MGSM's among them.
LANGUAGES = [
    ("Die Antwort ist 12.", "12"), ("**Antwort:** 12", "12"), ("Die Lösung lautet 12.", "12"),
    ("Endergebnis: 7", "7"), ("La réponse est 12.", "12"), ("Réponse finale : 12", "12"),
    ("La réponse finale est $\\frac12$.", "1/2"), ("La respuesta es 12.", "12"), ("Respuesta final: 12", "12"),
    ("Respuesta: 12 manzanas", "12"), ("A resposta é 12.", "12"), ("Resposta: 12", "12"),
    ("La risposta è 12.", "12"), ("Risposta finale: 12", "12"), ("答案是12。", "12"), ("答案：12", "12"),
    ("最终答案为 $12$。", "12"), ("答：12", "12"), ("所以，答案是 \\(12\\)。", "12"), ("答えは12です。", "12"),
    ("答え：12", "12"),
    ("答え: 12個", "12"), ("最終的な答えは $12$ です。", "12"), ("정답은 12입니다.", "12"), ("답: 12", "12"),
    ("최종 답은 12이다.", "12"),
    ("Ответ: 12", "12"), ("Ответ: 12.", "12"), ("Правильный ответ — 12.", "12"), ("**Ответ:** $12$", "12"),
    ("الجواب: 12", "12"), ("الإجابة هي 12.", "12"), ("الإجابة النهائية: 12", "12"), ("उत्तर: 12", "12"),
    ("उत्तर है 12।", "12"), ("अंतिम उत्तर 12 है।", "12"), ("সঠিক উত্তর: 12", "12"), ("คำตอบคือ 12", "12"),
    ("Jibu ni 12.", "12"), ("Het antwoord is 12.", "12"), ("Odpowiedź: 12", "12"), ("Svar: 12", "12"),
    ("Cevap: 12", "12"), ("Đáp án: 12", "12"), ("Die Antwort ist 3 Millionen.", "3000000"), ("答案是3万。", "30000"),
    ("答えは3時間20分です。", "\"3時間20分\""), ("La réponse est C non A", "\"c\""), ("الإجابة: 12", "12"),
    ("పరిష్కారం. సమాధానం: 12", "12"), ("Η απάντηση είναι 12.", "12"), ("Відповідь: 12", "12"),
    ("La réponse est donc 12 pommes.", "12"), ("答案是B。", "\"b\""),
    ("答えはCです", "\"c\""), ("정답은 C입니다", "\"c\""),
    ("Jawabannya adalah 12.", "12"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key"), LANGUAGES)
def test_other_languages_announce_answers_as_well(text: str, key: str) -> None:
    assert read(text) == key
    assert read(f"1 + 4 = 5\n\n{text}\n\n(9 - 2 = 7)") == key, "whatever stands around it"


def read(text: str) -> str | None:
    found = find(text, pattern=None)
    assert found is not None
    return verdict(found).key
