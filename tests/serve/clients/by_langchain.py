"""langchain-openai, several questions at a time: python by_langchain.py URL MODEL PROBLEMS.jsonl."""

import json
import re
import sys
from pathlib import Path

from langchain_openai import ChatOpenAI

url, model, problems = sys.argv[1:]
asked = [json.loads(line) for line in Path(problems).read_text("utf-8").splitlines()]
chat = ChatOpenAI(model=model, base_url=url, api_key="none", seed=1234)
answers = chat.batch([problem["question"] for problem in asked], config={"max_concurrency": 8})
right = [
    re.findall(r"(?m)^A:(.*)$", answer.content)[-1:] == [problem["answer"]]
    for problem, answer in zip(asked, answers, strict=True)
]
print(json.dumps({"accuracy": sum(right) / len(right), "problems": len(right)}))
