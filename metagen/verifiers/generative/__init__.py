"""Generative verifiers: language models as judges, asked in words, whose verdict is a label and its probability."""
