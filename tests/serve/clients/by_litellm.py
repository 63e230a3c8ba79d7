"""litellm: python by_litellm.py URL MODEL PROBLEMS.jsonl."""

import json
import re
import sys
from pathlib import Path

import litellm

url, model, problems = sys.argv[1:]
right = []
for line in Path(problems).read_text("utf-8").splitlines():
    problem = json.loads(line)
    answer = litellm.completion(
        model=f"openai/{model}", messages=[{"role": "user", "content": problem["question"]}],
        api_base=url, api_key="none", seed=1234,
    )  # fmt: skip
    said = re.findall(r"(?m)^A:(.*)$", answer.choices[0].message.content)
    right.append(said[-1:] == [problem["answer"]])
print(json.dumps({"accuracy": sum(right) / len(right), "problems": len(right)}))
