"""Attention and scores of GAT and GATv2."""
