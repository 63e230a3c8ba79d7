"""Verifiers from execution: an isolated sandbox for untrusted programs, tests run against it, agreement of outputs."""
