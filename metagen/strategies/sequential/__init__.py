"""Sequential scaling: one sequence, more tokens of thought."""
