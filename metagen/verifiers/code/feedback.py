"""What a report says to a model that is to mend its program: the failing case, expected, got, the traceback."""

from __future__ import annotations

from metagen.verifiers.code.report import Case, Report

_LINES = 20

#: Of verdicts that no assertion explains.
_WORDS = {
    "timeout": "It took too long",
    "memory": "It used too much memory",
    "output": "It wrote too much",
    "crashed": "The process ended",
    "broken": "The test itself fails, whatever the program does",
    "forged": "It interfered with how it is tested",
    "unrepresentable": "A value cannot be tested",
    "unavailable": "A package is missing here",
}


def feedback(report: Report, *, cases: int = 3) -> str:
    """The outcome in words: how many tests pass, and the first `cases` that do not."""
    head = f"{report.passed} of {len(report.cases)} tests pass."
    failing = [case for case in report.cases if case.verdict not in ("passed", "unreached")]
    return "\n\n".join([head, *map(_told, failing[:cases])])


def _told(case: Case) -> str:
    lines = [f"Failing test: {(case.case or case.test).strip()}"]
    if case.call is not None:
        lines.append(f"Call: {case.call}")
    if case.got is not None:
        lines += [f"Expected: {case.expected}", f"Got: {case.got}"]
    detail = _cut(case.detail) if case.detail else None
    if case.verdict in _WORDS:
        lines.append(f"{_WORDS[case.verdict]}: {detail or case.verdict}")
    elif detail:
        lines.append(detail)
    return "\n".join(lines)


def _cut(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines if len(lines) <= _LINES else [*lines[:3], "…", *lines[4 - _LINES :]])
