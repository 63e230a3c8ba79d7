"""Program of thoughts (Chen et al. 2023; PAL, Gao et al. 2023): the model writes a program, the sandbox computes."""

from __future__ import annotations

from typing import Final

from metagen.generators.base import Generator
from metagen.sequence import Prompt, Sequence
from metagen.strategies.chain.ask import Ask
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.use import Use
from metagen.strategies.tools import Tool, ToolError
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox

WRITE: Final = (
    "{prompt}\n\nWrite a Python program that computes the answer and prints it, and nothing else.\n"
)


def run_python(sandbox: Sandbox, *, program: ProgramRule | None = None) -> Tool:
    """A tool `python(program)`: what the program prints. An error, or a limit of the sandbox that it met, is told.

    program: reads the code out of the text; by default the last fenced block, else all of it.
    """
    rule = program or FencedProgram()

    async def python(program: str) -> str:
        """Run a Python program, and give what it prints."""
        code = rule.read(Sequence(Prompt("program", text="program"), program))
        if code is None:
            raise ToolError("there is no program")
        outcome = await sandbox.execute(code)
        if outcome.verdict != "finished":
            raise ToolError(f"{outcome.verdict}: {outcome.detail.strip()[-500:]}")
        return outcome.stdout.strip()

    version = f"{sandbox.language.fingerprint} {sandbox.limits!r} {rule.fingerprint}"
    return Tool(python, version=version, timeout=None, attempts=1)


def program_of_thought(
    generator: Generator,
    sandbox: Sandbox,
    *,
    write: str = WRITE,
    conclude: str | None = None,
    chat: bool = False,
    answer: AnswerRule | None = None,
) -> Chain:
    """Steps `program` and `result`: what the program prints is the answer.

    conclude: a template for a third step, `answer`, in which the model answers with {program} and {result} before it.
    """
    steps = {
        "program": Ask(generator, write, chat=chat),
        "result": Use(run_python(sandbox), program="{program}"),
    }
    if conclude is not None:
        return Chain({**steps, "answer": Ask(generator, conclude, chat=chat)}, answer=answer)
    return Chain(steps, answer=answer)
