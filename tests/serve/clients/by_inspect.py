"""inspect_ai, its tasks and scorers: python by_inspect.py URL MODEL PROBLEMS.jsonl."""

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import accuracy, pattern
from inspect_ai.solver import generate

url, model, problems = sys.argv[1:]
asked = [json.loads(line) for line in Path(problems).read_text("utf-8").splitlines()]
task = Task(
    dataset=[Sample(input=one["question"], target=one["answer"]) for one in asked],
    solver=generate(seed=1234),
    scorer=pattern(r"(?ms).*^A:([^\n]*)$"),
    metrics=[accuracy()],
)
served = get_model(f"openai-api/metagen/{model}", base_url=url, api_key="none")
(log,) = eval(task, model=served, display="none", log_dir=tempfile.mkdtemp())
assert log.status == "success", log.error
assert log.results is not None
value = log.results.scores[0].metrics["accuracy"].value
print(json.dumps({"accuracy": value, "problems": log.results.completed_samples}))
