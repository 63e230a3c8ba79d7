"""From LaTeX or plain text to tokens: spellings are unified here, so that the grammar has one of each."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final, NamedTuple

from metagen.verifiers.math import quantities
from metagen.verifiers.math.tree import Unreadable, names

MAX_TOKENS: Final = 400


class Token(NamedTuple):
    r"""kind: `n` numeral, `s` symbol, `f` function, `c` command such as `\frac`, `w` words, `o` operator."""

    kind: str
    text: str
    spaced: bool = False


FUNCTIONS: Final = names(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth arcsinh arccosh arctanh ln log lg "
    "exp max min gcd lcm abs floor ceil sign Re Im arg"
)
_ALIASES: Final = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arccot": "arccot", "ceiling": "ceil", "sgn": "sign",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip
GREEK: Final = names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho "
    "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi "
    "Omega ell"
)
_OPERATORS: Final = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓", "leq": "≤", "le": "≤", "leqslant": "≤",
    "geq": "≥", "ge": "≥", "geqslant": "≥", "neq": "≠", "ne": "≠", "lt": "<", "gt": ">", "approx": "≈", "in": "∈",
    "equiv": "=", "cup": "∪", "cap": "∩", "setminus": "∖", "mid": "|", "lvert": "|", "rvert": "|", "vert": "|",
    "langle": "⟨", "rangle": "⟩", "lbrace": "⦃", "rbrace": "⦄", "{": "⦃", "}": "⦄", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "infty": "∞", "pi": "π", "emptyset": "∅", "varnothing": "∅", "reals": "ℝ",
    "to": "→", "rightarrow": "→", "bmod": "mod", "mod": "mod",
    "backslash": "∖", "smallsetminus": "∖",
    "colon": ":", "land": "and", "wedge": "and", "lor": "or", "vee": "or", "\\": "\\\\",
}  # fmt: skip
_WORDS: Final = {
    "pi": "π", "infinity": "∞", "Infinity": "∞", "infty": "∞", "inf": "∞", "oo": "∞",
    "and": "and", "or": "or", "AND": "and", "OR": "or",
}  # fmt: skip
#: Printed as letters, but one name or unit.
_SHORT_UNITS: Final = names("cm mm km kg mg ml mL ft mi lb lbs hr hrs oz yd sq cu")
#: Two letters that are a word, where a blank stands before them.
_SMALL_WORDS: Final = names("is of to in as at by if it on so we no be an bn")
_PRODUCTS: Final = tuple(map(frozenset, ("xyz", "abc", "pqr", "rst", "kmn", "abcd", "mn", "uvw")))
#: Unicode characters for LaTeX commands. Digits of other scripts, and letters that look Latin, stay as they are.
_UNICODE: Final = str.maketrans({
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "⁄": "/", "√": "\\sqrt ",
    "≦": "≤", "≧": "≥", "⩽": "≤", "⩾": "≥", "≃": "≈", "∣": "|", "⟩": "⟩", "〈": "⟨", "〉": "⟩", "’": "'", "′": "'",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2003": " ", "\u200b": "", "≡": "=",
    "∞": "∞", "º": "°", "˚": "°", "℃": "°C", "℉": "°F", "‰": " permille",
    "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅛": " 1/8",
    "²": "^2", "³": "^3", "⁴": "^4", "⁵": "^5", "⁶": "^6", "⁷": "^7", "⁸": "^8", "⁹": "^9",
    "€": "$", "£": "$", "¥": "$", "₹": "$", "，": ",",
    "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "δ": "\\delta ", "ε": "\\epsilon ", "ϵ": "\\epsilon ",
    "ζ": "\\zeta ", "η": "\\eta ", "θ": "\\theta ", "ι": "\\iota ", "κ": "\\kappa ", "λ": "\\lambda ",
    "μ": "\\mu ", "µ": "\\mu ", "ν": "\\nu ", "ξ": "\\xi ", "ρ": "\\rho ", "σ": "\\sigma ", "τ": "\\tau ",
    "υ": "\\upsilon ", "φ": "\\phi ", "ϕ": "\\phi ", "χ": "\\chi ", "ψ": "\\psi ", "ω": "\\omega ",
    "Γ": "\\Gamma ", "Δ": "\\Delta ", "Θ": "\\Theta ", "Λ": "\\Lambda ", "Ξ": "\\Xi ", "Π": "\\Pi ",
    "Σ": "\\Sigma ", "Υ": "\\Upsilon ", "Φ": "\\Phi ", "Ψ": "\\Psi ", "Ω": "\\Omega ",
})  # fmt: skip

_TEXT: Final = (
    r"\\(?:text(?:bf|it|rm|normal|sf|tt|up)?|mbox|hbox|mathrm|mathbf|mathit|mathsf|operatorname\*?|rm|bf)"
)
_TOKEN: Final = re.compile(
    rf"""(?P<space>\s+)
    | {_TEXT}\s*\{{(?P<text>[^{{}}]*)\}}
    | (?P<repeating>\d*\.\d*\\overline\{{\d+\}})
    | (?P<scientific>\d+(?:\.\d+)?[eE][+-]?\d{{1,3}}(?![\d.]))
    | (?P<number>\d+(?:\.\d+)?|\.\d+)
    | \\(?P<command>[a-zA-Z]+|[{{}}|\\])
    | (?P<foreign>(?=[a-zA-Z]*(?u:(?![πℝ])[^\x00-\x7f\W\d_]))(?u:(?![πℝ])[^\W\d_])+)
    | (?P<letters>[a-zA-Z]+)
    | (?P<operator>\*\*|<=|>=|!=|==|[-+*/^_=<>(){{}}\[\]|,;:!%°'&±∓∪∩∖∈∞≤≥≠≈π⟨⟩∅ℝ])""",
    re.VERBOSE | re.ASCII,
)
_SIZES: Final = "bf|it|rm|sf|tt|bfseries|boldmath|tiny|small|normalsize|large|Large|LARGE|huge|Huge"
_SPELLED: Final = {"**": "^", "<=": "≤", ">=": "≥", "!=": "≠", "==": "="}
_THOUSANDS: Final = re.compile(r"(?<![\d.,])(?:[1-9]\d{0,2}(?:,\d{3})+)(?!\d|,\d)(?!\.\d*,\d)", re.ASCII)
#: A leading zero never opens groups of thousands: this comma is a decimal one.
_DECIMAL_COMMA: Final = re.compile(r"(?<![\d.,])0,(?=\d{3,}(?![\d,.]))", re.ASCII)
#: The rest of groups that are no thousands, as in 1,00,000, is no element either.
_ZEROS: Final = re.compile(r",0{2,}(?![\d.])|(?<![\d.,])0{2,},", re.ASCII)
_BLANKS: Final = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?![\d /])", re.ASCII)

_LATEX: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.ASCII), by)
    for pattern, by in (
        (r"(?<=\d)\s*(?:,\s*\\!|\{,\}|\\[,;:!]|\\ |~)\s*(?=\d{3}(?!\d))", ""),
        (r"\\(?:left|right)(?![a-zA-Z])\s*\.?|\\(?:big|Big|bigg|Bigg)[lr]?(?![a-zA-Z])", ""),
        (r"\\!|\\(?:displaystyle|textstyle|limits|nolimits|triangle|angle|hfill)(?![a-zA-Z])", ""),
        (r"\\(?:[dtcs]|nice)frac(?![a-zA-Z])", r"\\frac"),
        (
            r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}|^([^{}]*)\\over(?![a-zA-Z])([^{}]*)$",
            r"\\frac{\1\3}{\2\4}",
        ),
        (r"\\textcolor\s*\{[^{}]*\}\s*(?=\{)|\\color\s*\{[^{}]*\}", ""),
        (rf"\\(?:{_SIZES})(?![a-zA-Z])(?!\s*\{{)", ""),
        (r"\\(?:q?quad|newline(?![a-zA-Z]))|(?<!\\)\\[,;: \n]|~", " "),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])|\\degrees?(?![a-zA-Z])", "°"),
        # Feet, or minutes; with two strokes it is not known which.
        (r"(?<=\d)\s*\^\s*(?:\{\s*\\prime\s*\}|\\prime(?![a-zA-Z]))", ""),
        (r"\\pmod\s*(?:\{[^{}]*\}|\d+)|\(\s*\\(?:bmod|mod)\s*\d+\s*\)", ""),
        (r"\\mathbb\s*\{?R\}?|\\mathbf\{R\}|ℝ", r"\\reals "),
        (r"\\%|\\?%?\s*\\text\s*\{\s*(?:percent|percentage|pct)\s*\}", "%"),
        (r"\\text\s*\{\s*,?\s*(and|or)\s*,?\s*\}", r" \1 "),
    )
)
_DOUBLED: Final = re.compile(r"\\\\(?=[a-zA-Z{}()\[\]])")
_ABBREVIATED: Final = re.compile(r"(?<=[ \d])(sq|cu|ft|yd|in|mi|oz|lbs?|hrs?)\.(?=[ /]|$)")
#: A unit: 1,000 (dollars).
_BRACKETED: Final = re.compile(r"(?<=\d)\s*\(([a-z]{3,}(?: [a-z]+)*)\)\s*$")
_PERCENT: Final = re.compile(
    r"\s*\b(?:percentage|percent|pct|per cent|prozent|procent|pour ?cent|por ?cient[oa]|por cento|per ?cento)\b",
    re.IGNORECASE,
)
_TEMPERATURE: Final = re.compile(
    rf"(?:°|\bdegrees?\b)\s*((?:{_TEXT}\s*\{{)?)\s*(?:°\s*)?(C|F|K|(?i:celsius|centigrade|fahrenheit|kelvin))\b"
)
#: By their letters.
TEMPERATURES: Final = {"c": "celsius", "f": "fahrenheit", "k": "kelvin"}
_NEGATIVE: Final = re.compile(r"^\s*(?:negative|minus)\s+(?=[\d.\\])", re.IGNORECASE)
_LABEL: Final = re.compile(
    r"^\s*(?:\*\*)?(?:final\s+answer|answer)(?:\s+is)?\s*[:=]?\s*(?:\*\*)?", re.IGNORECASE
)
#: All of an answer in another face, as `\textbf{42}`: a text with digits is no word.
_FACE: Final = re.compile(
    rf"(?:{_TEXT}|\\(?:boldsymbol|bm|underline))\s*\{{([^{{}}]*\d[^{{}}]*)\}}", re.ASCII
)
_WRAPS: Final = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))


#: A rate: `18 dollars a day`.
_EACH: Final = re.compile(
    r"(?<=[a-z\d]) a (?=(?:second|minute|hour|day|week|month|year|piece|person|night)\b)"
)


def clean(answer: str) -> str:
    """The answer without delimiters, labels, spacing commands and currency signs."""
    text = unwrap(answer if answer.isascii() else answer.translate(_UNICODE))
    if "\\" in text or "{,}" in text:
        if "\\\\" in text and "\\begin" not in text:
            text = _DOUBLED.sub(r"\\", text)
        for pattern, by in _LATEX:
            text = pattern.sub(by, text)
        text = text.replace("\\$", "").strip()
    text = text.replace("$", "")
    if "c" in text or "z" in text:
        text = _PERCENT.sub("%", text)
    if "°" in text or "degree" in text:
        text = _TEMPERATURE.sub(lambda m: f"{m[1]} {TEMPERATURES[m[2][0].lower()]}", text)
    if " a " in text:
        text = _EACH.sub(" per ", text)
    text = _NEGATIVE.sub("-", text)
    if "." in text:
        text = _ABBREVIATED.sub(r"\1", text)
    if spelled := quantities.SPELLED.fullmatch(text):
        text = quantities.repeated_number(spelled) or text
    return _BRACKETED.sub(r" \1", text).strip()


def unwrap(text: str) -> str:
    """Without math delimiters, emphasis, a label such as `Answer:`, and a full stop around it."""
    for _ in range(8):
        before = text
        text = text.strip().rstrip(",;").removesuffix("\\").rstrip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        for left, right in _WRAPS:
            if len(text) > len(left + right) and text.startswith(left) and text.endswith(right):
                inner = text[len(left) : -len(right)]
                if left not in inner and right not in inner and not inner.endswith("\\"):
                    text = inner
        if text[:6].lower() in ("answer", "final ") and (match := _LABEL.match(text)):
            text = text[match.end() :]
        if text.startswith(("\\boxed{", "\\fbox{")) and text.endswith("}") and text.count("{") == 1:
            text = text[text.index("{") + 1 : -1]
        if "{" in text and (face := _FACE.fullmatch(text)):
            text = face[1]
        if text == before:
            break
    return text


def tokens(text: str) -> list[Token]:
    """The tokens of a cleaned answer; Unreadable if something is none, or there are too many."""
    if "," in text:
        depth = _depths(text)
        # Between brackets a comma separates elements; but nobody writes an element 000.
        text = _THOUSANDS.sub(
            lambda m: m[0] if depth[m.start()] and not m[0].endswith(",000") else m[0].replace(",", ""), text
        )
        depth = _depths(text)
        text = _DECIMAL_COMMA.sub(lambda m: m[0] if depth[m.start()] else "0.", text)
        if _ZEROS.search(text):
            raise Unreadable("a group of zeros by itself")
    if " " in text:
        text = _BLANKS.sub(lambda m: m[0].replace(" ", ""), text)
    result: list[Token] = []
    position, spaced = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"no token at {text[position : position + 10]!r}")
        position = match.end()
        if match.lastgroup == "space":
            spaced = True
            continue
        if match.lastgroup == "foreign":
            if not result or result[-1].kind != "n" or text[position:].strip():
                raise Unreadable(f"a word of another script: {match[0]!r}")
            factor = quantities.foreign(match[0])
            result.extend([Token("o", "*"), Token("n", str(factor))] if factor > 1 else [])
            continue
        result.extend(_token(match, spaced, result))
        spaced = False
        if len(result) > MAX_TOKENS:
            raise Unreadable(f"more than {MAX_TOKENS} tokens")
    return result


def _depths(text: str) -> list[int]:
    """The number of open brackets at each character: a comma within them separates elements."""
    same = text.replace("\\{", " (").replace("\\}", " )")
    return list(accumulate((c in "([") - (c in ")]") for c in same))


def _token(match: re.Match[str], spaced: bool, before: list[Token]) -> list[Token]:
    text = match[match.lastgroup or 0]
    match match.lastgroup:
        case "number" | "repeating" | "scientific":
            return [Token("n", text, spaced)]
        case "operator":
            return [Token("o", _SPELLED.get(text, text), spaced)]
        case "command":
            return [_command(text, spaced)]
        case "text":
            return _words(text, spaced)
    return _letters(text, spaced, before)


def _command(name: str, spaced: bool) -> Token:
    if name in _OPERATORS:
        return Token("o", _OPERATORS[name], spaced)
    if (name := _ALIASES.get(name, name)) in FUNCTIONS:
        return Token("f", name, spaced)
    return Token("s" if name in GREEK else "c", name, spaced)


def _words(text: str, spaced: bool) -> list[Token]:
    stripped = text.strip()
    if stripped in ("%", "and", "or", ","):
        return [Token("o", stripped, spaced)]
    if len(stripped) == 1 and stripped.isalpha():
        # Roman e and i are the constants; other single letters in text are names or units, as their place decides.
        return [Token("s" if stripped in "ei" else "w", stripped, True)]
    if (name := _ALIASES.get(stripped, stripped)) in FUNCTIONS:
        return [Token("f", name, spaced)]
    return [Token("w", stripped, spaced)] if stripped else []


def _letters(run: str, spaced: bool, before: list[Token]) -> list[Token]:
    if run in _WORDS:
        return [Token("o", _WORDS[run], spaced)]
    if run == "sqrt":
        return [Token("c", run, spaced)]
    if (name := _ALIASES.get(run, run)) in FUNCTIONS:
        return [Token("f", name, spaced)]
    if run in GREEK:
        return [Token("s", run, spaced)]
    if run.lower() == "no" or (spaced and run in _SMALL_WORDS):
        return [Token("w", run, spaced)]
    if run in _SHORT_UNITS and before and before[-1].kind in ("n", "w"):
        return [Token("w", run, spaced)]
    if len(run) <= 2 or any(set(run) <= letters for letters in _PRODUCTS):
        return [Token("s", letter, spaced and not i) for i, letter in enumerate(run)]
    return [Token("w", run, spaced)]
