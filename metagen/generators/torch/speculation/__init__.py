"""Speculative sampling: a draft proposes several tokens, and one pass of the target verifies them all."""
