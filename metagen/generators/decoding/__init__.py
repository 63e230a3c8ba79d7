"""Decoding as it is asked for, without torch: adapters, searches, drafts, grammars."""
