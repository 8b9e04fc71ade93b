"""Benchmarks: trials, search on validation, finished runs, rows, diagnosis."""
