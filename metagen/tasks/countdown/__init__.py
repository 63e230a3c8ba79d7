"""Countdown: reach a target from given numbers. To propose is hard, to check is easy; Game of 24 is a case of it."""
