"""Graphs in Parquet files: the folder is as from memory, also after a kill; and what is refused."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from battery.forked import printed
from graphtheory.data.loaders import (
    GraphFolder,
    NodeSetLoader,
    PartitionLoader,
    edge_cut,
    fennel,
)
from graphtheory.data.loaders import parquet as module
from graphtheory.graph import Neighborhood
from graphtheory.lab.cli import main
from graphtheory.patterns import AddSelf, Compose, GraphSAGE, SymmetricNormalize

duckdb = pytest.importorskip("duckdb")
NODES, EDGES = 300, 2_000


def graph() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Data]:
    """Columns of nodes in no order, of edges, and the same as PyG has it."""
    drawn = np.random.default_rng(0)
    order = drawn.permutation(NODES)
    x = drawn.normal(size=(NODES, 3)).astype(np.float32)
    y, part = drawn.integers(4, size=NODES), drawn.integers(5, size=NODES)
    ends = drawn.integers(NODES, size=(2, EDGES))
    weight = drawn.random(EDGES).astype(np.float32)
    nodes = {"id": order, "y": y[order], "block": part[order]}
    nodes |= {f"f{k}": x[order, k] for k in range(3)}
    edges = {"source": ends[0], "target": ends[1], "w": weight}
    data = Data(x=torch.from_numpy(x), y=torch.from_numpy(y), edge_index=torch.from_numpy(ends))
    data.part, data.edge_weight = torch.from_numpy(part), torch.from_numpy(weight)
    return nodes, edges, data


def write(path: Path, columns: dict[str, Any]) -> Path:
    with duckdb.connect() as db:
        db.execute(f"COPY (FROM columns) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    nodes, edges, _ = graph()
    return write(tmp_path / "edges.parquet", edges), write(tmp_path / "nodes.parquet", nodes)


COLUMNS: dict[str, Any] = {"part": "block", "weight": "w", "x": ["f0", "f1", "f2"]}


@pytest.mark.parametrize("normalize", [False, True])
def test_the_folder_equals_the_one_from_memory(files, tmp_path, monkeypatch, normalize) -> None:
    monkeypatch.setattr(module, "CHUNK", 64)
    _, _, data = graph()
    told = []
    kept = GraphFolder.from_parquet(
        *files, tmp_path / "graph", **COLUMNS, normalize=normalize,
        progress=lambda *step: told.append(step),
    )  # fmt: skip
    kept.verify()
    assert told[-1][1] == told[-1][2] == kept.graph.num_edges
    whole = Neighborhood.from_edge_index(data.edge_index, NODES, weight=data.edge_weight)
    if normalize:
        whole = Compose(AddSelf(), SymmetricNormalize())(whole)
    original = kept.original_id
    assert torch.equal(original.sort().values, torch.arange(NODES))
    assert torch.equal(kept.part, data.part[original]) and not kept.part.diff().lt(0).any()
    assert torch.equal(kept.node["x"], data.x[original])
    assert torch.equal(kept.node["y"], data.y[original])
    dense = torch.zeros(NODES, NODES)
    dense[original[:, None], original] = kept.graph.to_dense()
    torch.testing.assert_close(dense, whole.to_dense().float(), rtol=1e-6, atol=1e-7)
    assert {path.suffix for path in kept.folder.iterdir()} == {".npy", ".json"}
    batch = next(iter(PartitionLoader(kept, kept.part, batch_size=2)))
    assert torch.equal(batch.x, data.x[batch.original_id])


def test_columns_of_edges_travel_where_they_are_asked_for(files, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 64)
    _, edges, data = graph()
    number = np.arange(EDGES)
    write(files[0], edges | {"number": number})
    kept = GraphFolder.from_parquet(
        *files, tmp_path / "graph", **COLUMNS, edge_attributes=["number"]
    )
    kept.verify()
    assert [*kept.left] == ["number"] and kept.left["number"].dtype == torch.int64
    ends = kept.original_id[kept.graph.edge_index()]
    assert torch.equal(data.edge_index[:, kept.left["number"]], ends)
    assert torch.equal(data.edge_weight[kept.left["number"]], kept.graph.weight)
    for options, message in (
        ({"edge_attributes": ["time"]}, r"edge_attributes: 'time' is no column of edges"),
        ({"edge_attributes": ["number"], "normalize": True}, "edge_attributes: got .* loops have"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphFolder.from_parquet(*files, tmp_path / "other", **COLUMNS, **options)
    assert {p.name for p in tmp_path.iterdir()} == {"edges.parquet", "nodes.parquet", "graph"}


def test_ids_of_any_type_have_their_nodes_in_a_file(tmp_path: Path) -> None:
    nodes = {"id": np.array(["b", "c", "a"]), "f": np.array([1.0, 2.0, 3.0])}
    edges = {"source": np.array(["a", "b"]), "target": np.array(["b", "c"])}
    kept = GraphFolder.from_parquet(
        write(tmp_path / "e.parquet", edges), write(tmp_path / "n.parquet", nodes), tmp_path / "g"
    )
    with duckdb.connect() as db:
        found = dict(db.execute(f"FROM '{tmp_path}/g/names.parquet'").fetchall())
    assert found == {"a": 0, "b": 1, "c": 2} and kept.graph.weight is None
    assert kept.ids(["c", "a"]).tolist() == [2, 0]
    with pytest.raises(IndexError, match="original: 'd' was no id"):
        kept.ids(["d"])
    assert kept.graph.edge_index().tolist() == [[0, 1], [1, 2]]
    assert kept.node["f"].tolist() == [3.0, 1.0, 2.0]


def test_lists_of_numbers_are_rows(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.parquet", {"source": np.array([0]), "target": np.array([1])})
    with duckdb.connect() as db:
        for name, last in (("n", "[5, 6]"), ("odd", "[5]")):
            rows = f"VALUES (0, [1::FLOAT, 2]), (1, [3, 4]), (2, {last})"
            db.execute(f"COPY (SELECT * FROM ({rows}) t(id, x)) TO '{tmp_path}/{name}.parquet'")
    kept = GraphFolder.from_parquet(edges, tmp_path / "n.parquet", tmp_path / "g")
    assert kept.node["x"].tolist() == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(ValueError, match="x: lists of unequal length"):
        GraphFolder.from_parquet(edges, tmp_path / "odd.parquet", tmp_path / "h")


EDGE = "SELECT 0 AS source, 1 AS target"


def converted(folder: Path, nodes: str, edges: str = EDGE, **more: Any) -> GraphFolder:
    for name, query in (("nodes", nodes), ("edges", edges)):
        duckdb.execute(f"COPY ({query}) TO '{folder}/{name}.parquet' (FORMAT parquet)")
    return GraphFolder.from_parquet(
        folder / "edges.parquet", folder / "nodes.parquet", folder / "g", **more
    )


def test_ids_that_do_not_count_from_0_are_looked_up(tmp_path) -> None:
    nodes = "SELECT range + 5 AS id, range + 5 AS y, 1 - range // 5 AS p FROM range(10)"
    kept = converted(tmp_path, nodes, "SELECT 7 AS source, 8 AS target", part="p")
    draw = GraphSAGE(2)
    for seeds in ([7], torch.tensor([7]), torch.ones(10, dtype=torch.bool)):
        for order in (None, "original"):
            with pytest.raises(ValueError, match="had ids of their own, expected node_order"):
                NodeSetLoader(kept, draw, 1, input_nodes=seeds, node_order=order)
    moved = GraphFolder.write(kept, tmp_path / "again", torch.arange(10) % 3)
    moved.verify()
    for folder in (kept, moved, GraphFolder(kept.folder)):
        seeds = folder.ids(torch.tensor([7, 14]))
        loader = NodeSetLoader(
            folder, draw, 1, input_nodes=seeds, node_order="folder", batch_size=2
        )
        assert next(iter(loader)).y[:2].tolist() == [7, 14]
        for wrong in (["7"], [0], [7.5]):
            with pytest.raises(IndexError, match=f"original: {wrong[0]!r} was no id"):
                folder.ids(wrong)
    (own := tmp_path / "own").mkdir()
    assert converted(own, "SELECT range AS id FROM range(3)").names is None


LIST = ", [1.5, CASE WHEN range = 1 THEN NULL ELSE 2.5 END] AS f"
BIG = "18446744073709551610::UBIGINT"
SILENT: list[tuple[str, str, dict[str, Any], str]] = [
    (LIST, EDGE, {}, "f: has empty entries, expected a number in every row"),
    (", range - 1 AS p", EDGE, {"part": "p"}, "part: 'p' has -1 to 1, expected 0 or more"),
    (", range * 0.6::DOUBLE AS p", EDGE, {"part": "p"}, "part: 'p' has DOUBLE, expected whole"),
    (f", {BIG} AS y", EDGE, {}, "y: 18446744073709551610 does not fit int64"),
    (f", [{BIG}] AS y", EDGE, {}, "y: 18446744073709551610 does not fit int64"),
    (", 'n' AS name", EDGE, {}, "name: a column of VARCHAR, expected numbers; leave it out"),
    (", [[range]] AS y", EDGE, {}, "y: a column of BIGINT[][], expected numbers"),
    (", [range] AS y", EDGE, {"x": ["y"]}, "x: 'y' has lists, expected a number in every row"),
    (", range AS original_id", EDGE, {}, "original_id: the folder says something else"),
    (", range AS edge_index", EDGE, {}, "edge_index: the folder says something else"),
    (", range AS n_id", EDGE, {}, "n_id: the batch says something else under this name"),
    (", range AS rowid", EDGE, {}, "nodes: DuckDB numbers rows as 'rowid'"),
    (', range AS "a/b"', EDGE, {}, "attributes: got the name 'a/b', expected one without /"),
    (", range AS t", f"{EDGE}, 7 AS t", {"edge_attributes": ["t"]}, "edge_attributes: ['t'] are"),
    (", range AS y", f"{EDGE}, 7 AS x", {"edge_attributes": ["x"], "x": ["y"]},
     "edge_attributes: ['x'] are names of nodes' attributes, expected others"),
    ("", "SELECT 0::DOUBLE AS source, 1 AS target", {},
     "source: a column of DOUBLE for ids of BIGINT, expected the same type"),
    ("", "SELECT 0 AS source, '1' AS target", {},
     "target: a column of VARCHAR for ids of BIGINT, expected the same type"),
    ("", f"{EDGE}, 'a' AS w", {"weight": "w"}, "w: a column of VARCHAR, expected numbers"),
    ("", f"{EDGE}, [1.5] AS w", {"weight": "w"}, "weight: 'w' has lists, expected a number"),
    ("", f"{EDGE}, NULL::FLOAT AS w", {"weight": "w"}, "w: has empty entries"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "edges", "options", "message"), SILENT)
def test_what_would_be_another_graph_is_refused(tmp_path, column, edges, options, message) -> None:
    told = list[str]()
    with pytest.raises(ValueError, match=re.escape(message)):
        converted(
            tmp_path, f"SELECT range AS id{column} FROM range(3)", edges, **options,
            progress=lambda what, *rows: told.append(what),
        )  # fmt: skip
    assert {*told} <= {"checking nodes"} or message == "w: has empty entries"  # nothing is sorted
    assert {p.name for p in tmp_path.iterdir()} == {"edges.parquet", "nodes.parquet"}


def test_files_of_a_table_have_the_same_columns(tmp_path) -> None:
    for name, query in {
        "n0": "SELECT range AS id, range AS y FROM range(2)",
        "n1": "SELECT range + 2 AS id, 0.75::DOUBLE AS y FROM range(1)",
        "m0": "SELECT range AS id FROM range(2)",
        "m1": "SELECT range + 2 AS id, 9 AS z FROM range(1)",
        "e": EDGE,
    }.items():
        duckdb.execute(f"COPY ({query}) TO '{tmp_path}/{name}.parquet' (FORMAT parquet)")
    edges, run = tmp_path / "e.parquet", tmp_path / "run=3"
    for nodes, odd in (("n", "('y', 'BIGINT'), ('y', 'DOUBLE')"), ("m", "('z', 'INTEGER')")):
        with pytest.raises(ValueError, match=rf"{nodes}1\.parquet and .*{re.escape(odd)}"):
            GraphFolder.from_parquet(edges, tmp_path / f"{nodes}*.parquet", tmp_path / "g")
    run.mkdir()  # the name of a folder is no column
    (tmp_path / "n0.parquet").rename(run / "n0.parquet")
    kept = GraphFolder.from_parquet(edges, run / "*.parquet", tmp_path / "g")
    assert [*kept.node] == ["y"]
    with pytest.raises(FileNotFoundError, match="run=3, a folder; expected its files, such as"):
        GraphFolder.from_parquet(edges, run, tmp_path / "h")


def test_tables_of_which_no_manifest_tells_are_not_used(files, tmp_path) -> None:
    assert printed(killed, tmp_path / "graph", files, "writing nodes", 128)[1] == -signal.SIGKILL
    (tmp_path / ".graph.parquet" / "manifest.json").unlink()
    write(files[0], {name: value[:5] for name, value in graph()[1].items()})
    assert GraphFolder.from_parquet(*files, tmp_path / "graph", **COLUMNS).graph.num_edges == 5


def killed(folder: Path, files: tuple[Path, Path], at: str, enough: int) -> None:
    """A process that ends itself in the middle."""

    def progress(what: str, done: int, total: int) -> None:
        if what == at and done >= enough:
            os.kill(os.getpid(), signal.SIGKILL)

    module.CHUNK = 64
    GraphFolder.from_parquet(*files, folder, **COLUMNS, progress=progress)


@pytest.mark.parametrize(
    ("what", "done"), [("sorting edges", 0), ("writing nodes", 128), ("writing edges", 640)]
)
def test_after_a_kill_the_same_call_goes_on(files, tmp_path, monkeypatch, what, done) -> None:
    folder = tmp_path / "graph"
    assert printed(killed, folder, files, what, done)[1] == -signal.SIGKILL and not folder.exists()
    monkeypatch.setattr(module, "CHUNK", 64)
    with pytest.raises(ValueError, match="was begun from other files or options; delete it"):
        GraphFolder.from_parquet(*files, folder, part="block")
    if what == "writing edges":  # a piece that was damaged meanwhile is written again
        with (tmp_path / ".graph.parquet" / "x.x.npy").open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(b"\xff" * 8)
    wrote = []
    rows = module.SortedTables._rows
    monkeypatch.setattr(
        module.SortedTables, "_rows",
        lambda self, table, names, first, stop: (
            wrote.append((table, first)), rows(self, table, names, first, stop)
        )[1],
    )  # fmt: skip
    resumed = GraphFolder.from_parquet(*files, folder, **COLUMNS)
    resumed.verify()
    fresh = GraphFolder.from_parquet(*files, tmp_path / "fresh", **COLUMNS)
    for path in fresh.folder.glob("*.npy"):
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    if what == "writing edges":
        assert [first for table, first in wrote if table == "nodes"][:1] == [256]
        assert ("edges", 0) not in wrote[: wrote.index(("nodes", 0))]


@pytest.mark.parametrize("at", ["tell", "SortedTables.finish"])
def test_what_ends_at_the_last_file_sorts_nothing_again(files, tmp_path, monkeypatch, at) -> None:
    def ends(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(f"graphtheory.data.loaders.folder.{at}", ends)
        GraphFolder.from_parquet(*files, tmp_path / "graph", **COLUMNS)
    told = list[str]()
    kept = GraphFolder.from_parquet(
        *files, tmp_path / "graph", **COLUMNS, progress=lambda what, *_: told.append(what)
    )
    kept.verify()
    assert {*told} == {"writing nodes", "writing edges"} and kept.names is None
    assert not (kept.folder / "names.parquet").exists()


def without(columns: dict[str, np.ndarray], **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (columns | changes).items() if value is not None}


IDS = np.arange(NODES)
WRONG: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, {"id": "name"}, "id: 'name' is no column of nodes, which has ['id', "),
    ({}, {}, {"weight": "v"}, "weight: 'v' is no column of edges, which has ['source', "),
    ({}, {}, {"x": ["f0", "g"]}, "x: 'g' is no column of nodes"),
    ({"id": IDS // 2}, {}, {}, "id: "),
    ({"id": IDS + 1}, {}, {}, "source: edges name 0, which is no id of nodes"),
    ({}, {"target": np.full(EDGES, NODES)}, {}, f"target: edges name {NODES}, which is no id"),
    ({"name": IDS.astype(str)}, {}, {}, "name: a column of "),
    ({"f0": np.ma.masked_less(IDS.astype(float), 1)}, {}, {}, "f0: has empty entries"),
]


@pytest.mark.parametrize(("of_nodes", "of_edges", "options", "message"), WRONG)
def test_what_does_not_fit_is_named(tmp_path, of_nodes, of_edges, options, message) -> None:
    nodes, edges, _ = graph()
    nodes, edges = nodes | of_nodes, edges | of_edges
    if "f0" in of_nodes:  # numpy's masks are written as empty entries
        import pandas

        nodes = pandas.DataFrame(
            {n: np.ma.filled(v.astype(float), np.nan) for n, v in nodes.items()}
        )
        nodes["f0"] = nodes["f0"].astype("Float64").where(IDS > 0)
        nodes["id"] = nodes["id"].astype(int)
    files = write(tmp_path / "e.parquet", edges), write(tmp_path / "n.parquet", nodes)
    with pytest.raises(ValueError, match=re.escape(message)):
        GraphFolder.from_parquet(*files, tmp_path / "g", **options)
    assert not (tmp_path / "g").exists()


def test_missing_files_and_full_folders_are_refused(files, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="nodes: no file matches"):
        GraphFolder.from_parquet(files[0], tmp_path / "none.parquet", tmp_path / "g")
    with pytest.raises(FileExistsError, match="something lies in"):
        GraphFolder.from_parquet(*files, tmp_path)
    (odd := tmp_path / "odd.parquet").write_text("no table")
    for given, options, message in (
        (files, {"memory_limit": "lots"}, "memory_limit: got 'lots', expected a size such as"),
        ((files[0], odd), {}, "nodes or edges: .*odd.parquet.*; expected Parquet files"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphFolder.from_parquet(*given, tmp_path / "g", **options)
    assert {*tmp_path.iterdir()} == {*files, odd}


def test_the_command_divides_and_tells_the_cut(files, tmp_path, capsys) -> None:
    words = ["convert", *map(str, files), str(tmp_path / "graph"), "--x", "f0,f1", "--parts", "4"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    kept = GraphFolder(tmp_path / "graph")
    assert (told["nodes"], told["edges"]) == (NODES, EDGES)
    assert told["edge_cut"] == edge_cut(kept, kept.part) and kept.part.unique().tolist() == [
        *range(4)
    ]
    y = torch.empty(NODES, dtype=torch.int64).index_copy_(0, kept.original_id, kept.node["y"])
    assert kept.node["x"].shape == (NODES, 2) and torch.equal(y, graph()[2].y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["edges.parquet", "graph", "nodes.parquet"]
    assert main(words) == 2 and "something lies in" in capsys.readouterr().err
    assert main([*words[:3], str(tmp_path / "other"), "--id", "key"]) == 2
    assert not (tmp_path / ".other.parquet").exists()
    assert "id: 'key' is no column of nodes" in capsys.readouterr().err
    assert main(["convert", "edges.parquet"]) == 2
    assert "NODES: missing, expected EDGES NODES FOLDER" in capsys.readouterr().err


def test_the_command_takes_columns_of_edges_along_also_into_parts(files, tmp_path, capsys) -> None:
    _, edges, data = graph()
    time = np.linspace(0, 1, EDGES)
    write(files[0], edges | {"number": np.arange(EDGES), "time": time})
    words = ["convert", *map(str, files), str(tmp_path / "graph"), "--edge-attributes"]
    assert main([*words, "number,time", "--normalize"]) == 2
    assert "edge_attributes: got ['number', 'time'] beside normalize" in capsys.readouterr().err
    assert main([*words, "age"]) == 2
    assert "edge_attributes: 'age' is no column of edges" in capsys.readouterr().err
    for options in ([], ["--parts", "4"]):
        words[3] = str(tmp_path / f"graph{len(options)}")
        assert main([*words, "number,time", *options]) == 0
        kept = GraphFolder(words[3], ["number", "time"])
        number, ends = kept.edge["number"], kept.original_id[kept.graph.edge_index()]
        assert torch.equal(data.edge_index[:, number], ends)
        assert torch.equal(kept.edge["time"], torch.from_numpy(time)[number])


def test_an_interrupted_division_goes_on_from_what_these_options_made(files, tmp_path, monkeypatch):
    words = ["convert", *map(str, files), str(tmp_path / "graph"), "--parts", "4"]

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    made, real = [], GraphFolder.from_parquet
    monkeypatch.setattr(
        GraphFolder, "from_parquet", lambda *a, **b: made.append(0) or real(*a, **b)
    )
    with monkeypatch.context() as patch:
        patch.setattr("graphtheory.data.loaders.fennel", interrupted)
        assert main([*words, "--x", "f0"]) == 130
    assert main([*words, "--x", "f0,f1"]) == 0 and len(made) == 2
    assert GraphFolder(tmp_path / "graph").node["x"].shape == (NODES, 2)
    words[3] = str(tmp_path / "other")
    with monkeypatch.context() as patch:
        patch.setattr("graphtheory.data.loaders.fennel", interrupted)
        assert main([*words, "--x", "f0"]) == 130
    assert main([*words, "--x", "f0"]) == 0 and len(made) == 3


def test_one_pass_finds_parts_that_a_random_division_cuts() -> None:
    drawn = torch.Generator().manual_seed(0)
    group = torch.randint(8, (2_000,), generator=drawn)
    ends = torch.randint(2_000, (2, 200_000), generator=drawn)
    inside = (group[ends[0]] == group[ends[1]]) | (torch.rand(200_000, generator=drawn) < 0.02)
    data = Data(edge_index=to_undirected(ends[:, inside]), num_nodes=2_000)
    part = fennel(data, 8)
    assert part.bincount().max() <= 275 and edge_cut(data, part) < 0.5
    assert 0.85 < edge_cut(data, part[torch.randperm(2_000, generator=drawn)]) < 0.9
    assert torch.equal(fennel(data, 1), torch.zeros(2_000, dtype=torch.int64))
    for wrong in (0, 2_001, 2.0):
        with pytest.raises(ValueError, match=f"num_parts: got {wrong}, expected 1 to"):
            fennel(data, wrong)
