"""Experiments: frozen dataclasses of settings whose `run()` gives rows."""
