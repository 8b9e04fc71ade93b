"""Reports: results as tables, as one page that needs nothing else, and as house rows."""

from graphtheory.bench.summary import (
    difference_table,
    differences,
    rows,
    score_table,
    summaries,
)
from graphtheory.bench.table import Table, pairs
from graphtheory.report.benchmark import BenchmarkReport, options, search_table
from graphtheory.report.diagnosis import diagnosis_page, pictures, reading, tables
from graphtheory.report.explorer import AttentionExplorer, attention_explorer
from graphtheory.report.page import Page

__all__ = [
    "AttentionExplorer",
    "BenchmarkReport",
    "Page",
    "Table",
    "attention_explorer",
    "diagnosis_page",
    "difference_table",
    "differences",
    "options",
    "pairs",
    "pictures",
    "reading",
    "rows",
    "score_table",
    "search_table",
    "summaries",
    "tables",
]
