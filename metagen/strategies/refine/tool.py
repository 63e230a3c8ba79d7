"""A tool's words as feedback: a linter, a compiler, a calculator, a search."""

from __future__ import annotations

from dataclasses import field

from metagen.errors import InputError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.strategies.refine.feedback import Feedback, Remark
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.verifiers.generative.question import in_words

TAKEN = ("candidate", "task", "public")


@part
class ToolFeedback(Feedback):
    """What a tool says of a candidate. It is called through the scope: recorded, and charged as a call.

    tool: a function, which may be async, or a `Tool` (for a time limit and retries of one's own). It takes any of
    `candidate` and `task`, which are texts, and `public`, what a strategy may see of the task; it returns a text, or
    None where it has nothing to say. A ToolError, a time-out among them, is a remark as well. ends: where it has
    nothing to say, nothing is left to mend. Raises InputError for a tool that needs other arguments.
    """

    tool: Tool | Function = field(kw_only=False)
    ends: bool = False

    def __post_init__(self) -> None:
        self.tool = self._tool = as_tool(self.tool)
        if odd := [name for name in self._tool.required if name not in TAKEN]:
            raise InputError(
                f"the tool {self._tool.name!r} needs {odd[0]!r}; as feedback it gets {', '.join(TAKEN)}"
            )

    async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
        prompt = candidate.prompt
        given = {"candidate": candidate.text, "task": in_words(prompt), "public": dict(prompt.public)}
        names = {*self._tool.required, *self._tool.optional}
        try:
            said = await self._tool.call({name: given[name] for name in TAKEN if name in names}, scope)
        except ToolError as error:
            return Remark(str(error))
        if said is not None and not isinstance(said, str):
            raise InputError(f"the tool {self._tool.name!r} said {said!r:.60}; expected a text, or None")
        return Remark(said or None, done=self.ends and not said)
