"""Loaders of large graphs and transforms of PyG's `Data`."""
