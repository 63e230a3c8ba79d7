"""Refinement: a draft, feedback on it, a revision; until it is accepted, or the budget or the rounds end."""
