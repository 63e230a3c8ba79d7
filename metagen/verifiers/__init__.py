"""Verifiers v, utilities u and answer rules: what judges sequences without seeing the reference."""
