"""Data sets and synthetic data models.

Example:
    >>> from graphtheory.lab.datasets import graphs
    >>> graphs.describe("Actor").splits
    ('published', 'random-60-20-20')
"""
