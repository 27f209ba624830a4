"""Differential tests: one random history, two libraries, the same cells at every instant."""
