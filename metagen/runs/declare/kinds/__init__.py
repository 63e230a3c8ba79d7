"""Kinds of parts that an experiment file describes in a few words, made into objects."""
