"""Kernels for the CPU, compiled by numba; the README of this folder says which runs when."""
