"""lm-eval, by both of its clients for served models: python by_lm_eval.py URL MODEL PROBLEMS.jsonl [chat]."""

import json
import sys
import tempfile
from pathlib import Path

import lm_eval
import yaml
from lm_eval.tasks import TaskManager

url, model, problems, *chat = sys.argv[1:]
task = {
    "task": "served_arithmetic",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": problems}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": [], "max_gen_toks": 120},
    "filter_list": [
        {"name": "last", "filter": [
            {"function": "regex", "regex_pattern": r"(?m)^A:(.*)$", "group_select": -1},
            {"function": "take_first"},
        ]},
    ],
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "served.yaml").write_text(yaml.safe_dump(task), "utf-8")
    found = lm_eval.simple_evaluate(
        model="local-chat-completions" if chat else "local-completions",
        model_args={
            "model": model, "base_url": f"{url}/{'chat/completions' if chat else 'completions'}",
            "tokenizer_backend": None, "num_concurrent": 4, "seed": 1234,
        },
        tasks=["served_arithmetic"],
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        apply_chat_template=bool(chat),
        bootstrap_iters=0,
    )  # fmt: skip
assert found is not None
value = found["results"]["served_arithmetic"]["exact_match,last"]
print(json.dumps({"accuracy": value, "problems": found["n-samples"]["served_arithmetic"]["effective"]}))
