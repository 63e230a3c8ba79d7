"""Accuracy at a cost, from the tables: of single configurations, and of subsets of a pool."""
