"""What a model may call, and what it is to fill in, in `words_strategies.yaml`."""

from __future__ import annotations

import ast
import math
import operator
from fractions import Fraction

from pydantic import BaseModel, Field

from metagen.strategies.tools import ToolError

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class Answer(BaseModel):
    """The answer to a word problem."""

    steps: str = Field(description="the calculation, line by line", max_length=200)
    answer: float = Field(description="the number that is asked for")


def calculate(expression: str) -> str:
    """The value of an arithmetic expression of numbers, such as (3 + 4) * 2."""

    def value(node: ast.AST) -> Fraction:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return Fraction(str(number))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                found: Fraction = OPERATORS[type(op)](value(left), value(right))
                return found
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
        raise ToolError(f"{expression!r:.60} is not plain arithmetic")

    try:
        found = value(ast.parse(expression.strip().replace("×", "*").replace("÷", "/"), mode="eval"))
        if found.denominator == 1:
            return str(found)
        # Four places, or as many as four digits that are not 0 need.
        places = max(4, 3 - math.floor(math.log10(abs(found))))
        return f"{float(found):.{places}f}".rstrip("0").rstrip(".")
    except (SyntaxError, ValueError, RecursionError, ArithmeticError):
        raise ToolError(f"{expression!r:.60} has no value") from None


def work_out(query: str) -> str:
    """The answer to a follow-up question that is a calculation, such as 9 + 14."""
    return calculate(query.partition("=")[0].strip().rstrip("?").removeprefix("What is"))
