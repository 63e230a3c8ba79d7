"""OpenAI's own client: python by_openai.py URL MODEL PROBLEMS.jsonl."""

import json
import re
import sys
from pathlib import Path

from openai import OpenAI

url, model, problems = sys.argv[1:]
client = OpenAI(base_url=url, api_key="none")
right = []
for line in Path(problems).read_text("utf-8").splitlines():
    problem = json.loads(line)
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": problem["question"]}], seed=1234
    )
    said = re.findall(r"(?m)^A:(.*)$", answer.choices[0].message.content or "")
    right.append(said[-1:] == [problem["answer"]])
print(json.dumps({"accuracy": sum(right) / len(right), "problems": len(right)}))
