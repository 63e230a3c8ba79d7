"""Metagen inside other programs, and other programs' formats of what it does."""
