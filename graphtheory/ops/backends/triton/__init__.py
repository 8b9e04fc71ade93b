"""Kernels for GPUs in Triton; the README of this folder says which runs when."""
