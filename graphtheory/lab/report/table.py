"""Tables of text, as reports and figures write them; `bench.table` defines them."""

from graphtheory.lab.bench.table import (
    Table,
    counted,
    mean_spread,
    pairs,
    percent_mean,
    percent_spread,
)

__all__ = ["Table", "counted", "mean_spread", "pairs", "percent_mean", "percent_spread"]
