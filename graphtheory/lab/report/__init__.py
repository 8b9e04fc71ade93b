"""Reports: results as tables, as one page that needs nothing else, and as result rows."""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.bench.rows import Table, pairs
    from graphtheory.lab.report.benchmark import BenchmarkReport, options, search_table
    from graphtheory.lab.report.diagnosis import diagnosis_page, pictures, reading, tables
    from graphtheory.lab.report.page import AttentionExplorer, Page, attention_explorer

__all__ = [
    "AttentionExplorer", "BenchmarkReport", "Page", "Table", "attention_explorer",
    "diagnosis_page", "options", "pairs", "pictures", "reading", "search_table",
    "tables",
]  # fmt: skip

import_when_used(__name__)
