"""DSPy, a module and its evaluation: python by_dspy.py URL MODEL PROBLEMS.jsonl."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import dspy


class Plain(dspy.ChatAdapter):
    """Sends the question as it is: the embedded models know one notation, and no instructions."""

    def format(self, signature: Any, demos: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": inputs["question"]}]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {"answer": completion}


def is_right(example: dspy.Example, found: dspy.Prediction, trace: Any = None) -> bool:
    return re.findall(r"(?m)^A:(.*)$", found.answer)[-1:] == [example.answer]


url, model, problems = sys.argv[1:]
asked = [json.loads(line) for line in Path(problems).read_text("utf-8").splitlines()]
dspy.configure(
    lm=dspy.LM(f"openai/{model}", api_base=url, api_key="none", seed=1234, cache=False), adapter=Plain()
)
examples = [dspy.Example(**one).with_inputs("question") for one in asked]
evaluate = dspy.Evaluate(devset=examples, metric=is_right, num_threads=4, display_progress=False)
result = evaluate(dspy.Predict("question -> answer"))
right = [score for _, _, score in result.results]
print(json.dumps({"accuracy": sum(right) / len(right), "problems": len(right)}))
