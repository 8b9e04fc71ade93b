"""Data sets and synthetic data models; everything is imported when it is first used.

Example:
    >>> from graphtheory.data import graphs
    >>> graphs.describe("Actor").splits
    ('published', 'random-60-20-20')
"""
