"""Attention on CSR rows: three regimes by size."""
