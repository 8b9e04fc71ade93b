"""Layers on the core; PyG's contract in `nn.conv`."""

from graphtheory.nn.bias import BucketBias

__all__ = ["BucketBias"]
