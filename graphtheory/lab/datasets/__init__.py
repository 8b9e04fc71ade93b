"""Data sets and synthetic data models."""
