"""Chains: programs of named steps, each a generator, a verifier, a tool or a strategy; and known patterns."""
