"""Tasks: problems with their prompts, answer rules, and graders."""
