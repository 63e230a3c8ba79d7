"""Generators g: engines, language models and decoding; what samples sequences that continue a prefix."""
