"""Tries to break the library, and says with figures how far that went: `python -m battery`."""
