"""Phrases that announce an answer, in many languages, and quantities within sentences."""

from __future__ import annotations

import re
from typing import Final

from metagen.verifiers.math.quantities import SCALES

#: Behind `####`, GSM8K's mark of an answer: the words of a heading in Markdown.
_HEADING: Final = (
    r"(?![ \t]*\**(?:(?:step|part|case)\b|\d+[.)][ \t]+[A-Za-z][^\n]*\n\s*\S"
    r"|(?:final[ ]answer|answer|solution|conclusion|summary|result|explanation|verification|check|calculation|analysis"
    r"|reasoning)s?\b[^\n\d$\\]*(?:\n|\Z)))"
)
_ENGLISH: Final = (
    r"(?:(?:(?:final|correct|my)?[ ]?answers?|final[ ](?:results?|solutions?))(?:[ ]to[ ][^.\n:]{0,80}?)?"
    r"(?:[ ](?:is|are)(?![ ]not\b)"
    r"(?:[ ](?:therefore|thus|then|approximately|about|roughly|exactly|simply|just|clearly|indeed))*"
    rf"|\s*\**\s*[:=—–]|[ ]-(?=[ ]))|(?<!#)####(?!#){_HEADING}|<answer>)"
)
#: German, French, Spanish, Portuguese, Italian, Dutch, Polish, Czech, the Nordic languages, Turkish, Indonesian,
#: Vietnamese, Romanian, Hungarian, Greek, Russian, Ukrainian, Swahili; Chinese, Japanese, Korean; Arabic, Persian,
#: Hebrew, Hindi, Bengali, Thai, Telugu, Tamil.
_ANSWER: Final = (
    "antwort|endergebnis|ergebnis|lösung|réponse|reponse|résultat|respuesta|resultado|solución|resposta|solução|"
    "risposta|risultato|soluzione|antwoord|odpowiedź|odpověď|svaret|svar|vastaus|cevap|yanıt|jawabannya|jawaban|"
    "đáp án|đáp số|"
    "câu trả lời|răspunsul|răspuns|válasz|απάντηση|ответ|відповідь|jibu|"
    "答案|答え|解答|回答|答|정답|답|الجواب|"
    "الإجابة|الاجابة|جواب|پاسخ|תשובה|उत्तर|উত্তর|คำตอบ|సమాధానం|பதில்|விடை"
)
_FINAL: Final = "finale?|final[ae]?|definitiva|corretta|correcta|correta|النهائية|النهائي|הסופית|สุดท้าย"
_IS: Final = (
    "ist|lautet|beträgt|est|es|é|è|is|är|er|on|to|je|adalah|là|este|είναι|равен|равна|равно|ni|"
    "هي|هو|است|היא|हैं|है|হল|হলো|คือ|เท่ากับ"
)
PHRASE: Final = re.compile(
    rf"(?:{_ENGLISH}|(?:{_ANSWER})(?:\s+(?:{_FINAL}))?"
    rf"(?:\s*(?:{_IS})(?=[\s\d$\\:：*-])(?:\s+(?:donc|also|somit|daher|quindi|dunque|portanto|entonces|dus))?"
    rf"|\s*[是为為は은는이가]|\s*\**\s*[:：=—–]|(?=\s*[\d$\\])))"
    r"[ \t]*[:：]?[ \t]*(?:\*\*|__)?[ \t]*[:：]?",
    re.IGNORECASE,
)
SENTENCE: Final = re.compile(
    r"\.(?=\s|$|\*)|!(?=\s*(?:\Z|\n|[A-Z*]))|\n|,? (?:because|since|which|so that|as|I hope)\b"
    r"|, (?:not|but|rather|instead)\b|<\||</|\*\*|```|, and (?:it|this|that) (?:is|was)\b"
    r"|[。।]|(?<=^[A-Z]) (?:not|non|nicht)\b|(?:です|となります|である|입니다|이다|है|হয়)(?=\W|$)"
)
#: In one of these, an announced answer is a sentence, and the answer is in it.
VERB: Final = re.compile(
    r"(?<!\\)\b(?:there|that|is|are|was|were|has|have|had|will|would|can|must|needs?|takes?|costs?|equals?|gets?|got|"
    r"makes?|made|earn(?:s|ed)?|pays?|paid|spends?|spent|runs?|ran|sells?|sold|buys?|bought|save[sd]?|eats?|ate|use[sd]?|drives?|"
    r"drove|walk(?:s|ed)?|receive[sd]?|owe[sd]?|loses?|lost|reads?|ist|sind|"
    r"est|sont|hay|son|sono|são)\b",
    re.IGNORECASE,
)

_SCALE: Final = (
    rf"(?:gross(?=\s*(?:of\b|[^\w\s]|$))|(?:{'|'.join(SCALES)})s?|(?:percentage|basis)\spoints?"
    r"|\w*(?:teen|tie|illion|hundred|thousand)ths?)"
)
_TEMPERATURE: Final = (
    r"(?:(?:°|\^\s*(?:\\circ|\{\s*\\circ\s*\})|degrees?\b)\s*\$?\s*(?:\\(?:text|mbox|mathrm)\s*\{\s*)?"
    r"(?:fahrenheit|kelvins?|[FK])\b\}?|(?:fahrenheit|kelvins?)\b)"
)
_DIGITS: Final = r"(?:\d{1,3}(?:(?:,|\s?\{,\}\s?|\\,|[\u00a0\u2009\u202f])\d{3})+|\d+)(?:\.\d+)?"
_FAMILIES: Final = (
    "years?|months?|weeks?|days?|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|時間|小时|小時|分钟|分鐘|分|秒|시간|분|초|"
    "stunden?|minuten?|sekunden?|heures?|horas?|minutos?|segundos?|minuti|часов|часа|час|минуты?",
    "feet|foot|ft|inch(?:es)?|in|yards?|miles?|cm",
    "pounds?|lbs?|ounces?|oz|kg",
    "dollars?|cents?|euros?",
)
_COMPOUND: Final = "|".join(
    rf"{_DIGITS}\s?(?:{f})(?:(?:,?\s(?:and|und|et|y|e)\s|,\s|\s?){_DIGITS}\s?(?:{f})(?!\w))+"
    for f in _FAMILIES
)
#: A quantity of several units.
COMPOUND: Final = re.compile(_COMPOUND, re.ASCII | re.IGNORECASE)
#: Words behind a formula that make another number of it.
FOLLOWS: Final = re.compile(
    rf"\s*(?:\$|\\\))?\s*(?:(?P<percent>\\?%|percent\b)|(?P<words>{_SCALE}\b(?:\s{_SCALE}\b)*|{_TEMPERATURE}"
    r"|[ap](?:\.\s?m\.?|m\b)))",
    re.IGNORECASE,
)
#: A number in a sentence, with the words that make another number of it.
NUMBER: Final = re.compile(
    rf"(?<![\w.,/\\^_{{:])(?:{_COMPOUND}|\d{{1,2}}(?::[0-5]\d)?\s?[ap](?:\.\s?m\.?|m\b)|\d+(?::\d+)+(?!\d)"
    rf"|[-−]?[$€£]?{_DIGITS}(?:/\d+|\s?%|\spercent\b)?(?![\d{{^]|[.,]\d)(?:(?:[ -]{_SCALE}\b)+"
    r"|(?:[万萬億亿百兆만억천]|千(?![克米瓦卡赫]))+|[½¼¾⅓⅔⅛]"
    rf"|\s?{_TEMPERATURE}"
    r"|\sand\s(?:a|one|three)[ -](?:half|third|quarters?))?)|(?<![\w.])-?\.\d+\b",
    re.ASCII | re.IGNORECASE,
)
