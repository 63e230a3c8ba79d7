"""Measurements of speed: both sides of every comparison in one run."""
