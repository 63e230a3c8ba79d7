"""Known chains of two or three steps.

- chain-of-thought (Wei et al. 2022; in two calls, Kojima et al. 2022), and `direct`, the answer at once;
- system 2 attention (Weston & Sukhbaatar 2023);
- search and predict (demonstrate–search–predict, Khattab et al. 2022);
- program of thoughts (Chen et al. 2023; PAL, Gao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metagen.border import checked
from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.sequence import Prompt, Sequence
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, ChainStep, Continue, Use
from metagen.strategies.reopen import stop_at
from metagen.strategies.tools import Function, Tool, ToolError
from metagen.values import Count
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox


def chain_of_thought(
    generator: Generator,
    *,
    cue: str,
    thought: Count | None = None,
    thinker: Generator | None = None,
    answer: AnswerRule | None = None,
) -> Chain:
    """Goes on from the problem until the model would write `cue`, and from there with the cue to the answer.

    thought: max_tokens of the thought. The generator's own bound thought and answer together: only a thought that is
    cut before leaves room for an answer. thinker: writes the thought; by default the generator, stopped at the cue as
    well as at its own stop texts. cue: the text before the answer.
    """
    if odd := _conflict({"thinker": thinker, "thought": thought}):
        raise InputError(f"chain_of_thought: {odd}")
    if thinker is None:
        thinker = stop_at(generator, cue)
        thinker = thinker if thought is None else thinker.replace(max_tokens=thought)
    return Chain(
        {"thought": Continue(thinker), "answer": Continue(generator, cue, after="thought")}, answer=answer
    )


def _conflict(given: Mapping[str, Any]) -> str | None:
    """What fields of `chain_of_thought` cannot be to each other."""
    thought = given["thought"]
    if given["thinker"] is None or thought is None:
        return None
    return (
        f"thought={thought!r} is of the generator's own thoughts, and a thinker writes them here; give it "
        f"max_tokens={thought!r}, or leave one of them out"
    )


vars(chain_of_thought).update(conflict=_conflict)


def direct(generator: Generator, *, cue: str = "", answer: AnswerRule | None = None) -> Chain:
    """The answer at once, behind the cue: what chain-of-thought is to be compared with.

    cue: the text before the answer.
    """
    return Chain({"answer": Continue(generator, cue)}, answer=answer)


REWRITE: Final = (
    "Here is a problem. Write it again with all that is needed to solve it, and without opinions or anything else that "
    "is beside the point. Do not solve it.\n\n{prompt}\n\nThe problem, written again:\n"
)


def system_two_attention(
    generator: Generator,
    *,
    rewriter: Generator | None = None,
    rewrite: str = REWRITE,
    ask: str = "{rewritten}",
    chat: bool = False,
    answer: AnswerRule | None = None,
) -> Chain:
    """Two steps, `rewritten` and `answer`; the second does not see the first form of the problem.

    rewriter: writes the problem again; by default the generator itself. rewrite: the template that asks for a
    rewritten problem. ask: the template that asks for the answer.
    """
    steps = {
        "rewritten": Ask(rewriter or generator, rewrite, chat=chat),
        "answer": Ask(generator, ask, chat=chat),
    }
    return Chain(steps, answer=answer)


@checked
def search_predict(
    generator: Generator, search: Tool | Function, *, hops: Count = 2, answer: AnswerRule | None = None
) -> Chain:
    """Steps `query_1`, `passages_1`, … and `answer`; each query sees the passages of the hops before it.

    search: takes a `query`. `demonstrate` puts worked examples before the queries and the answer. hops: how often it
    searches.
    """
    steps: dict[str, ChainStep] = {}
    context = ""
    for hop in range(1, hops + 1):
        steps[f"query_{hop}"] = Ask(generator, f"{context}Question: {{prompt}}\nSearch query:")
        steps[f"passages_{hop}"] = Use(search, query=f"{{query_{hop}}}")
        context += f"Context: {{passages_{hop}}}\n"
    steps["answer"] = Ask(generator, f"{context}Question: {{prompt}}\nAnswer:")
    return Chain(steps, answer=answer)


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
    write: the template that asks for a program.
    """
    steps = {
        "program": Ask(generator, write, chat=chat),
        "result": Use(run_python(sandbox), program="{program}"),
    }
    if conclude is not None:
        return Chain({**steps, "answer": Ask(generator, conclude, chat=chat)}, answer=answer)
    return Chain(steps, answer=answer)
