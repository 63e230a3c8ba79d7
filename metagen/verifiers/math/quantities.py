"""The values of numerals, and the words behind them: those that multiply, those that say more, and units.

A unit is dropped, as the question sets it. Other words stay: the key of a quantity that is not understood is its text.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from metagen.verifiers.math.tree import Unreadable, names

#: Decimals from this many places on may be a rounded fraction.
PLACES: Final = 6
#: A double has about 16 significant digits; the last two of a printed one are rounding noise.
DOUBLE: Final = range(16, 18)
KEPT: Final = 14
_REPEATING: Final = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}", re.ASCII)


def decimal(text: str) -> Fraction:
    """The value of digits with at most one point, such as `12`, `.5` or `0.333333`.

    Exact, but for long decimals: with d ≥ 6 places they are read as the simplest fraction that rounds to them, if
    its denominator is at most 10^(d/2 − 1): `0.333333` is 1/3, `3.141593` is itself. A random decimal meets such a
    fraction with a chance of about 0.3 %. Others that look like a printed double (16 or 17
    significant digits, at least 6 places) are rounded to 14 digits first: `0.30000000000000004` is 3/10.
    """
    whole, _, places = text.partition(".")
    places = places.rstrip("0")
    exact = Fraction(int((whole or "0") + places), 10 ** len(places))
    if len(places) < PLACES:
        return exact
    simple = exact.limit_denominator(10 ** (len(places) // 2 - 1))
    if abs(simple - exact) * 2 <= Fraction(1, 10 ** len(places)):
        return simple
    significant = len((whole + places).lstrip("0"))
    if significant not in DOUBLE:
        return exact
    cut = significant - KEPT
    kept = (int(whole + places) + 10**cut // 2) // 10**cut
    digits = f"{kept:0{len(places) - cut + 1}d}"
    return decimal(f"{digits[: cut - len(places)]}.{digits[cut - len(places) :]}")


def repeating(text: str) -> Fraction:
    r"""The value of `0.1\overline{6}`."""
    match = _REPEATING.fullmatch(text)
    assert match is not None
    whole, places, period = match[1] or "0", match[2], match[3]
    scale = 10 ** len(places)
    return Fraction(int(whole + places), scale) + Fraction(int(period), (10 ** len(period) - 1) * scale)


def scientific(text: str) -> Fraction:
    """The value of `1.5e-3`; the exponent has at most three digits."""
    mantissa, _, exponent = text.lower().partition("e")
    return decimal(mantissa) * Fraction(10) ** int(exponent)


_ILLIONS: Final = ("m", "b", "tr", "quadr", "quint", "sext", "sept", "oct", "non", "dec")
SCALES: Final[dict[str, int | Fraction]] = {
    "hundred": 100, "hundert": 100, "dozen": 12, "doz": 12, "dutzend": 12, "douzaine": 12, "docena": 12,
    "dozzine": 12, "dúzia": 12, "googol": 10**100, "lakh": 10**5, "lac": 10**5, "crore": 10**7,
    **{f"{prefix}illion": 1000 ** (k + 2) for k, prefix in enumerate(_ILLIONS)},
    **dict.fromkeys(names("thousand tausend mille mil mila duizend tusen ribu elfu"), 1000),
    **dict.fromkeys(names("millionen millones millón milhões milhão milioni milione milion miljoen miljon milyon juta "
                          "mln mio"), 10**6),
    **dict.fromkeys(names("milliard milliarden miliardi miliardo miliard miljard milyar miliar bilhões bilhão "
                          "mrd mlrd bln bn"), 10**9),
    **dict.fromkeys(names("billionen billones billón trilhões trilhão triliun"), 10**12),
    "permille": Fraction(1, 1000), "promille": Fraction(1, 1000), "ppm": Fraction(1, 10**6), "ppb": Fraction(1, 10**9),
}  # fmt: skip
#: Words whose factor is not known, which are kept like variables: a gross is 144, or an amount before deductions; 3M is
#: millions, or a molarity.
_NAMED: Final = {word: word for word in names("gross score grand thou myriad tn cr k K M B T")}
#: With one of these a quantity is not merely its number.
_QUALIFIERS: Final = names(
    "am pm noon midnight morning afternoon evening night o'clock past ago late early later earlier before "
    "after until since bc ad bce ce off north south east west northeast northwest southeast southwest northern "
    "southern eastern western northward southward eastward westward clockwise counterclockwise anticlockwise "
    "right up down upward downward upwards downwards forward backward forwards backwards above below under "
    "over beneath behind ahead inside outside loss lost losses debt deficit owed short shortfall overdrawn "
    "increase decrease increased decreased rise fall drop reduction decline discount more less fewer greater "
    "smaller larger higher lower longer shorter taller older younger faster slower bigger heavier lighter "
    "than least most maximum minimum maximal minimal between nearly almost not no non never none nothing "
    "except without but minus plus negative positive opposite reciprocal inverse remainder root roots squared "
    "cubed power factorial choose mod modulo half halves third thirds fourth fourths quarter quarters fifth "
    "fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths eleventh elevenths twelfth "
    "twelfths gross tens basis bps pp double twice triple twofold "
    "fold one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety zero january february "
    "march april may june july august september october november december monday tuesday wednesday thursday "
    "friday saturday sunday "
)
#: Other fractions in words, and numbers of any size.
_NUMERAL: Final = re.compile(r"(?:\w*(?:teen|tie|illion|hundred|thousand|dozen)|n)ths?|\w*illions?")
#: Characters that make more than a unit of a word, in scripts without blanks between words.
_EASTERN: Final = frozenset("半以未超余前後后上下割折成分点點時时반이전후할")
_EASTERN_SCALES: Final = {
    "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "만": 10**4, "억": 10**8,
}  # fmt: skip
_KILO: Final = ("千克", "千米", "千瓦", "千卡")
_FOREIGN: Final = (
    "тыс", "дюжин", "милл", "млн", "млрд", "сот", "процент", "полов", "लाख", "करोड़", "हज़ार", "हजार", "सौ", "प्रतिशत",
    "مليون", "ملايين", "ألف", "آلاف", "مليار", "مئة", "بالمئة", "ล้าน", "แสน", "หมื่น", "พัน", "ร้อย",
    "লক্ষ", "কোটি", "হাজার", "শত", "χιλ", "εκατ", "δισ",
)  # fmt: skip
_SINGULAR: Final = {
    "h": "hour", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "sec": "second", "secs": "second",
    "ft": "foot", "feet": "foot", "in": "inch", "inches": "inch", "lb": "pound", "lbs": "pound", "oz": "ounce",
    "yd": "yard", "mi": "mile", "s": "second",
}  # fmt: skip
_PIECE: Final = r"(\d+(?:,\d{3})*(?:\.\d+)?(?: \d+/\d+|/\d+)?) ?([^\W\d_]+)\.?"
_COMPOUND: Final = re.compile(rf"{_PIECE}(?:(?:,? and |, ?| ){_PIECE})+", re.ASCII)
_CLOCK: Final = re.compile(
    r"(\d{1,2})(?::([0-5]\d))?(:[0-5]\d)?\s*([ap])\.?\s?m\.?", re.ASCII | re.IGNORECASE
)
_TIME: Final = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
#: Dates, spans of time, and dollars with cents.
_NO_NUMBER: Final = re.compile(
    r"\d{4}-\d\d?-\d\d?|\d\d?([./-])\d\d?\1(?:\d{4}|\d\d)|\d\d?:\d\d ?(?:-|–|—|to) ?\d\d?:\d\d"
    r"|[$€£]?\d[\d,]*,? (?:and )?\d+ (?:cents?|¢)",
    re.ASCII,
)
_BEARING: Final = re.compile(r"(.*\bdegrees) ([nsew])", re.IGNORECASE)
_QUARTERS: Final = {"n": "north", "s": "south", "e": "east", "w": "west"}


#: A number said twice: `5 (five)`.
SPELLED: Final = re.compile(r"(\d+) \(([a-z]+)\)", re.ASCII | re.IGNORECASE)
_NUMBERS: Final = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip


def repeated_number(match: re.Match[str]) -> str | None:
    """The number that a match of SPELLED says twice; None if the word is another one."""
    number, word = int(match[1]), match[2].lower()
    return match[1] if number < len(_NUMBERS) and _NUMBERS[number] == word else None


def scale(word: str) -> int | Fraction | str | None:
    """The factor that a word stands for; a name, where the factor is not known; None for any other word."""
    lower = word.lower()
    forms = (word,) if len(word) == 1 else (lower, lower.removesuffix("s"))
    return next((SCALES.get(f) or _NAMED[f] for f in forms if f in SCALES or f in _NAMED), None)


def _more(word: str) -> bool:
    return word in _QUALIFIERS or isinstance(scale(word), int | Fraction) or bool(_NUMERAL.fullmatch(word))


def unit(words: str) -> str:
    """The name of a unit, in the singular; Unreadable for words that do not only name one."""
    found = re.findall(
        r"[^\W\d_]+(?:['’][^\W\d_]+)*", words.lower().replace("’", "'").replace("left over", "left")
    )
    if any(character.isdigit() for character in words) or any(map(_more, found)):
        raise Unreadable(f"more than a unit: {words!r}")
    return " ".join(map(_singular, found))


def foreign(word: str) -> int:
    """The factor of a word of another script behind a number; Unreadable where it is not known."""
    if isinstance(known := scale(word), int):
        return known
    eastern = "\u3040" <= word[0] <= "\ud7ff"
    factor = 1 if word.startswith(_KILO) else _EASTERN_SCALES.get(word[0], 1)
    rest = word[1:] if factor > 1 else word
    if (not eastern and len(word) < 2) or word.lower().startswith(_FOREIGN) or not _EASTERN.isdisjoint(rest):
        raise Unreadable(f"more than a unit: {word!r}")
    if any(c in _EASTERN_SCALES for c in rest) and not rest.startswith(_KILO):
        raise Unreadable(f"a number: {word!r}")
    return factor


def _singular(word: str) -> str:
    return _SINGULAR.get(word) or (word[:-1] if word.endswith("s") and len(word) > 3 else word)


def to_one_form(text: str) -> str:
    """A quantity known by its text, in one form: a time, and one of several units; any other text as it is."""
    if clock := _CLOCK.fullmatch(text):
        return f"{int(clock[1])}:{clock[2] or '00'}{clock[3] or ''} {clock[4].lower()}m"
    if bearing := _BEARING.fullmatch(text):
        return f"{bearing[1]} {_QUARTERS[bearing[2].lower()]}"
    if _COMPOUND.fullmatch(text):
        return " ".join(f"{number} {_singular(name.lower())}" for number, name in re.findall(_PIECE, text))
    return text


def is_time(text: str) -> bool:
    """Whether a text is a time of the day or a date, not the ratio, quotient or difference that it looks like.

    `12:30` is a time, for a ratio would be 2:5; `2:3` and `7:45` are read as ratios.
    """
    if time := _TIME.fullmatch(text):
        parts = [int(part) for part in time.groups() if part is not None]
        return parts[0] < 25 and (parts[-1] < 10 or math.gcd(*parts) > 1)
    return (_CLOCK.fullmatch(text) or _NO_NUMBER.fullmatch(text)) is not None
