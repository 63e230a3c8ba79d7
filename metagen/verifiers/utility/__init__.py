"""Utilities u(y, y'): how good y is if y' were right; what minimum Bayes risk decoding maximises."""
