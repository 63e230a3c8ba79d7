"""Tool use: in each turn the model calls a tool by JSON, or answers."""

from __future__ import annotations

import ast
import operator
import sys
from datetime import date

from model import solve

import metagen as mg
from metagen.strategies.chain.tool_use import ToolUse
from metagen.strategies.tools import ToolError

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression: str) -> float:
    """The value of an arithmetic expression, such as (3 + 4) * 2."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
        raise ToolError(f"{expression!r} is not plain arithmetic")

    try:
        return value(ast.parse(expression.strip(), mode="eval"))
    except (SyntaxError, ZeroDivisionError) as error:
        raise ToolError(f"{expression!r}: {error}") from None


def days_between(first: date, second: date) -> int:
    """Days from one date to another, both as YYYY-MM-DD."""
    return (date.fromisoformat(str(second)) - date.fromisoformat(str(first))).days


def build(generator: mg.Generator) -> mg.Strategy:
    return ToolUse(generator, [calculate, days_between], most=6, chat=True)


if __name__ == "__main__":
    solve(build, sys.argv[1:])
