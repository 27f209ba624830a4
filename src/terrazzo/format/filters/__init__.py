"""Filters: each a value with two inverse methods; `pipeline.FILTERS` is the closed table of them all."""
