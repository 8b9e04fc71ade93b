import pytest

from graphtheory.graph import query_stars


def test_every_query_hears_its_own_contexts_and_no_query() -> None:
    rows = query_stars(3, 2)
    assert (rows.num_dst, rows.num_src) == (3, 9)
    heard = [rows.indices[rows.indptr[p] : rows.indptr[p + 1]].tolist() for p in range(3)]
    assert heard == [[0, 1], [3, 4], [6, 7]]
    assert query_stars(2, 0).num_edges == 0 and query_stars(2, 0).num_src == 2


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="length: got -1"):
        query_stars(1, -1)
