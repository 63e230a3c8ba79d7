"""Strategies as models behind the OpenAI API: for other programs, and in this process."""
