"""Experiments: many problems, many configurations, one durable run."""
