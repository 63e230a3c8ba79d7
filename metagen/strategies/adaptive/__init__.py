"""Adaptive compute: as many samples, tokens and tools as a problem needs, decided while it is being solved."""
