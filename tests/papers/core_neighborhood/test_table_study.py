from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood.table_study import TABLES, TableStudy


def test_every_table_has_the_rows_that_it_is_made_of() -> None:
    for table in TABLES.values():
        small = TableStudy(table.table, table.wanted, 2, table.moments, "karate")
        rows = [Row(**row) for row in small.run()]
        assert set(table.wanted) <= {row.name for row in rows}


def test_a_table_without_features_measures_none() -> None:
    (step,) = TableStudy("B.6", ("nodes",), moments=(), dataset="karate").steps()
    assert {row["name"] for row in step.run()}.isdisjoint({"margin", "discriminative share"})
    assert step.settings["dataset"] == "karate" and not step.settings["moments"]
