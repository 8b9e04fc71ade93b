"""Vector code that numba would not write: lanes of rows, and products of small matrices."""
