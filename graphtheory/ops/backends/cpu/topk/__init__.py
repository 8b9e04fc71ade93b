"""Attention on equal complete blocks, and the k largest entries of a row."""
