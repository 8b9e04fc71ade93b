from dataclasses import replace

from graphtheory.lab.bench.rows import percent_spread
from graphtheory.papers.pivot import Pivot

MEASURED = [
    {"method": name, "contexts": n, "seed": seed, "loss": n, "error": (n + seed) / 100}
    for name in ("ICL", "1-NN")
    for n in (5, 10)
    for seed in (0, 2)
]
ERRORS = Pivot(
    "errors", {"error": "test error"}, {"method": "method"}, "contexts", cell=percent_spread,
    column="{} contexts", note="In percent.",
)  # fmt: skip


def test_lines_and_columns_may_change_places_and_measures_have_a_column_each() -> None:
    table, rows, _ = ERRORS(None, MEASURED)
    assert table.columns == ["method", "5 contexts", "10 contexts"] and table.note == "In percent."
    assert table.rows[0] == ["ICL", "6.00 ± 1.41", "11.00 ± 1.41"]
    turned = replace(ERRORS, turned=True)(None, MEASURED)
    assert turned.rows == rows
    assert turned.table.columns == ["method", "ICL", "1-NN"]
    assert turned.table.rows[1] == ["10 contexts", "11.00 ± 1.41", "11.00 ± 1.41"]
    both = replace(ERRORS, measures={"loss": "loss", "error": "error"})
    table, rows, _ = both(None, MEASURED)
    wanted = ["loss, 5 contexts", "error, 5 contexts", "loss, 10 contexts", "error, 10 contexts"]
    assert table.columns[1:] == wanted
    assert [row.name for row in rows[:2]] == ["loss", "error"]
    assert rows[1].parameters == {"method": "ICL", "contexts": 5}
    assert replace(both, across=None)(None, MEASURED).table.columns == ["method", "loss", "error"]
