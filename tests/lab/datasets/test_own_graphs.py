import gzip
import io
import math
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePath

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

from battery.files import Forged
from graphtheory.lab.datasets import own_graphs
from graphtheory.lab.datasets.own_graphs import graph_set, read_graph_file

EDGE = torch.tensor([[0, 1], [1, 0]])
NAN = math.nan


def graph(y: object, **other: object) -> Data:
    given = {"x": torch.ones(2, 3), "edge_index": EDGE, "y": torch.tensor(y)} | other
    return Data(**given)


def ten(make: object = None, **other: object) -> list[Data]:
    return [graph([i % 2], **other) for i in range(10)]


@pytest.mark.parametrize(("labels", "kind", "outputs", "metric"), [
    ([[0], [1], [2]], "multiclass", 3, "accuracy"),
    ([0, 1, 2], "multiclass", 3, "accuracy"),
    ([[[0, 1]], [[1, 1]], [[0, 0]]], "multilabel", 2, "rocauc"),
    ([[[0.0, NAN]], [[1.0, 1.0]], [[NAN, 0.0]]], "multilabel", 2, "rocauc"),
    ([[0.0], [1.0], [1.0]], "multilabel", 1, "rocauc"),
    ([[[0.5]], [[1.0]], [[2.0]]], "regression", 1, "rmse"),
    ([[[0.5, NAN]], [[1.0, 2.0]], [[2.0, 0.0]]], "regression", 2, "rmse"),
    ([[0, 1], [1, -1], [2, 2]], "multiclass", 3, "accuracy"),
    ([[0], [1, -1], [2, 2]], "multiclass", 3, "accuracy"),  # the first graph has one node
])  # fmt: skip
def test_labels_tell_the_kind(labels: list[object], kind: str, outputs: int, metric: str) -> None:
    graphs = [graph(y) for y in labels]
    if labels[1] == [1, -1] and labels[0] == [0]:
        graphs[0] = Data(x=torch.ones(1, 3), edge_index=EDGE[:, :0], y=torch.tensor([0]))
    made = graph_set(graphs, split=([0], [1], [2]))
    assert (made.kind, made.num_outputs, made.metric) == (kind, outputs, metric)
    nodes = labels[1] == [1, -1]
    assert made.level == ("node" if nodes else "graph")
    expected = (2,) if nodes else (1,) if kind == "multiclass" else (1, outputs)
    assert made[1].y.shape == expected
    assert made[1].y.dtype == (torch.int64 if kind == "multiclass" else torch.float32)


def test_categories_are_counted_over_the_whole_set() -> None:
    graphs = [graph([i % 2], x=torch.tensor([[i, 0], [0, 1]])) for i in range(10)]
    for i, one in enumerate(graphs):
        one.edge_attr = torch.tensor([i % 4, 0])
    made = graph_set(graphs)
    assert made.x_categories == (10, 2) and made.edge_categories == (4,)
    assert made[3].edge_attr.shape == (2, 1) and made.smiles is None
    assert graphs[0].edge_attr.shape == (2,)  # the user's own graphs stay as they are


def test_the_split_is_stratified_drawn_or_given() -> None:
    graphs = [graph([i % 2]) for i in range(40)]
    made, again, other = (graph_set(graphs, seed=seed) for seed in (0, 0, 1))
    assert made.split == "random-80-10-10" and len(made.train_index) == 32
    assert made.y[made.test_index].bincount().tolist() == [2, 2]
    assert torch.equal(made.test_index, again.test_index)
    assert not torch.equal(made.test_index, other.test_index)
    given = graph_set(graphs, split=([3, 1], torch.tensor([5]), [7]))
    assert given.train_index.tolist() == [3, 1] and given.split == "own"


@pytest.mark.parametrize(("change", "message"), [
    ({"y": torch.tensor([1, 0, 1])}, r"graph 4: y is int64 \[3\], expected int64 \[1\]"),
    ({"y": torch.tensor([0.5])}, r"graph 4: y is float32 \[1\], expected integers as in graph"),
    ({"y": torch.tensor([-1])}, "graph 4: y holds -1, expected classes from 0"),
    ({"y": None}, "graph 4: y is missing"),
    ({"x": None}, "graph 4: x is missing"),
    ({"x": torch.ones(2, 4)}, r"graph 4: x is float32 \[2, 4\], expected 3 columns"),
    ({"x": torch.ones(2, 3).long()}, r"graph 4: x is int64 \[2, 3\], expected 3 columns of fl"),
    ({"x": torch.ones(2, 3).bool()}, r"graph 4: x is bool \[2, 3\], expected real numbers"),
    ({"x": torch.full((2, 3), NAN)}, "graph 4: x holds nan, expected finite numbers"),
    ({"x": torch.ones(0, 3), "edge_index": EDGE[:, :0]}, "graph 4 has no nodes"),
    ({"x": torch.ones(2, 3).to_sparse()}, r"graph 4: x is sparse, expected a dense tensor"),
    ({"x": torch.ones(2, 0)}, r"graph 4: x is float32 \[2, 0\], expected one column or more"),
    ({"edge_index": EDGE + 1}, r"graph 4: edge \[1, 2\] in edge_index, expected ids in 0..1"),
    ({"edge_index": EDGE.t()[:1]}, r"graph 4: edge_index is int64 \[1, 2\], expected int64"),
    ({"edge_index": EDGE.float()}, r"graph 4: edge_index is float32 \[2, 2\], expected int64"),
    ({"edge_attr": torch.ones(2, 1)}, "graph 4: edge_attr is float32.*expected none as in graph 0"),
    ({"edge_attr": torch.ones(3, 1)}, "graph 4: edge_attr has 3 rows, expected 2"),
    ({"x": [[0], [-1]]}, "graph 4: x holds -1, expected categories from 0; numbers have to be"),
    ({"x": [[0], [2**20]]}, "graph 4: x holds the integer 1048576, expected categories below"),
])  # fmt: skip
def test_a_graph_that_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    whole = isinstance(change.get("x"), list)  # categories, on all graphs
    graphs = ten(x=torch.tensor([[0], [1]])) if whole else ten()
    for name, value in change.items():
        graphs[4][name] = torch.tensor(value) if whole else value
    with pytest.raises(ValueError, match=message):
        graph_set(graphs)


def test_labels_and_edge_features_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="y: the largest class is 1970 among 10 labels, expected"):
        graph_set([graph([1961 + i]) for i in range(10)])
    values = [graph([1961 + i]) for i in range(10)]
    assert graph_set(values, kind="regression").metric == "rmse"
    graphs = ten(edge_attr=torch.ones(2, 2))
    graphs[7].edge_attr = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"graph 7: edge_attr is float32 \[2, 3\], expected 2 col"):
        graph_set(graphs)
    with pytest.raises(ValueError, match="graphs: got none"):
        graph_set([])
    with pytest.raises(TypeError, match="graph 1: got dict, expected a PyG Data"):
        graph_set([graph([0]), {}])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="y: got 1 class in all graphs"):
        graph_set([graph([0]) for _ in range(10)])


@pytest.mark.parametrize(("y", "message"), [
    ([[NAN, NAN]], "graph 2: y is NaN, so that no label is left"),
    ([[math.inf, 0.0]], "graph 2: y holds an infinite value"),
    ([[0.5, 0.1, 0.2]], r"graph 2: y is float32 \[1, 3\], expected float \[1, 2\] as graph 0"),
])  # fmt: skip
def test_targets_that_do_not_fit_are_named(y: list[object], message: str) -> None:
    graphs = [graph(v) for v in ([[0.5, 1.0]], [[0.0, NAN]], y)]
    with pytest.raises(ValueError, match=message):
        graph_set(graphs, split=([0], [1], [2]))


def test_labels_of_a_kind_that_was_asked_for() -> None:
    halves = [graph([[0.5]]), graph([[1.0]]), graph([[0.0]])]
    with pytest.raises(ValueError, match=r"graph 0: y holds .0.5., expected labels 0, 1 or NaN"):
        graph_set(halves, kind="multilabel", split=([0], [1], [2]))
    ones = [graph([[0.0]]), graph([[1.0]]), graph([[0.0]])]
    assert graph_set(ones, kind="regression", split=([0], [1], [2])).metric == "rmse"
    with pytest.raises(ValueError, match="kind: got 'ranking', expected one of multiclass"):
        graph_set(ones, kind="ranking")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric: got 'ap', a multiclass task has accuracy"):
        graph_set(ten(), metric="ap")


@pytest.mark.parametrize(("split", "message"), [
    ((0.5, 0.5), r"split: got \(0.5, 0.5\), expected three fractions"),
    ((0.5, 0.4, 0.3), "expected three positive fractions of sum 1"),
    ((math.nan, 0.5, 0.5), "expected three positive fractions of sum 1"),
    (([0], [1], [10]), r"split: positions 0..10 of 10 graphs"),
    (([0], [1], [1]), "split: a graph is in two parts"),
    (([0], [], [1]), "leaves none for val"),
    ((0.8, 0.1, 0.1), "of 4 graphs leaves none for val"),
])  # fmt: skip
def test_splits_that_cannot_be_are_refused(split: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_set(ten()[:4] if split[0] == 0.8 else ten(), split=split)


def test_files_are_read_without_running_them(tmp_path) -> None:
    before = torch.serialization.get_safe_globals()
    torch.save(ten(), tmp_path / "list.pt")
    torch.save(ten()[3], tmp_path / "one.pt")
    found = read_graph_file(tmp_path / "list.pt")
    assert isinstance(found, list) and len(found) == 10
    one = read_graph_file(tmp_path / "one.pt")
    assert isinstance(one, Data) and torch.equal(one.y, torch.tensor([1]))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_graph_file(tmp_path / "none.pt")
    assert set(torch.serialization.get_safe_globals()) == set(before)


@pytest.mark.filterwarnings("ignore")  # of torch, where quantized tensors are deprecated
@pytest.mark.parametrize(("made", "told"), [
    (lambda x: x.to("meta"), "x) is on meta, without its numbers"),
    (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "x) is quantized"),
], ids=["meta", "quantized"])  # fmt: skip
@pytest.mark.parametrize("many", [True, False])
def test_tensors_without_plain_numbers_are_named(
    tmp_path: Path, made: Callable[[torch.Tensor], torch.Tensor], told: str, many: bool
) -> None:
    x = made(torch.ones(2, 3))
    torch.save([graph([0]), graph([1], x=x)] if many else graph([0], x=x), tmp_path / "file.pt")
    with pytest.raises(ValueError, match=re.escape(f"file.pt (graph {int(many)}: {told}")):
        read_graph_file(tmp_path / "file.pt")


class Own(Data):
    pass


HETERO = HeteroData()
HETERO["a"].x = torch.ones(2, 3)
RIGHT, YEAR = graph([0]), graph([0], year=np.arange(2))
HELD: dict[str, tuple[object, str]] = {  # what torch.save stored -> what is said of it
    "numpy attribute": (YEAR, r"holds numpy.*; take it out, or make a tensor"),
    "numpy x": (graph([0], x=np.ones((2, 3))), r"holds numpy.*; take it out"),
    "number of numpy": (graph([0], t=np.float64(3)), r"holds numpy.*scalar"),
    "of the third graph": ([RIGHT, graph([0]), YEAR], r"holds numpy"),
    "known name": ([graph([0], year=1), YEAR], r"holds numpy.*; take it out"),
    "in a list": (graph([0], more=[1, np.ones(1)]), r"holds numpy"),
    "path": (graph([0], at=PurePath("a")), r"holds pathlib.PurePosixPath; take"),
    "code": (graph([0], at=Forged(pytest.fail, ["it runs"])), r"holds _pytest.outcomes\S+; take"),
    "Batch": (Batch.from_data_list([RIGHT]), r"holds .*; of a Batch save batch.to"),
    "HeteroData": (HETERO, r"holds .*; of a HeteroData save data.to_homo"),
    "class of one's own": (Own(x=torch.ones(2)), r"holds \S+test_own_graphs.Own"),
    "network": (torch.nn.Linear(2, 2), r"holds torch.nn.modules.linear.Linear"),
    "array": (np.ones(2), r"holds numpy.*; take it out, or make a tensor"),
    "dictionary": ({"x": torch.ones(2)}, r"file.pt holds dict, expected a PyG Data or a list"),
    "tensor": (torch.ones(2), "holds Tensor, expected a PyG Data or a list of Data, stored by"),
    "no graph": ([], "holds an empty list, expected a PyG Data or a list of Data"),
    "mixture": ([RIGHT, 3], "holds list with int at 1, expected a PyG Data or a list of Data"),
    "collated": ((RIGHT, {"x": torch.ones(2)}), "holds tuple with dict at 1, expected a PyG Data"),
}  # fmt: skip


def zipped(content: bytes) -> bytes:
    """An archive as torch's, with other content in the place of its pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3")
    return buffer.getvalue()


def array_file(content: np.ndarray, save: object) -> bytes:
    buffer = io.BytesIO()
    save(buffer, content)  # type: ignore[operator]
    return buffer.getvalue()


WHOLE = array_file(RIGHT, lambda buffer, graph: torch.save(graph, buffer))  # type: ignore[arg-type]
OTHERS = {  # files of other formats, or damaged ones
    "csv": b"source,target\n0,1\n",
    "graphml": b"<?xml version='1.0' encoding='utf-8'?><graphml/>",
    "json": b'{"nodes": []}',
    "npy": array_file(np.ones(2), np.save),
    "npz": array_file(np.ones(2), np.savez),
    "pickle": pickle.dumps([1]),
    "gzip": gzip.compress(WHOLE),
    "nothing": b"",
    "cut": WHOLE[:-99],
    "cut pickle": zipped(WHOLE[:90]),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_file_holds_beside_graphs_is_named(tmp_path: Path, name: str) -> None:
    content, told = HELD[name]
    torch.save(content, tmp_path / "file.pt")
    with pytest.raises(ValueError, match=f"^data: .*{told}"):
        read_graph_file(tmp_path / "file.pt")


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_formats_are_named_by_their_first_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.pt").write_bytes(OTHERS[name])
    with pytest.raises(ValueError, match=r"^data: .*file.pt is not .* begins b['\"].*expected a"):
        read_graph_file(tmp_path / "file.pt")


def test_the_table_sees_one_sentence_for_all(tmp_path: Path, monkeypatch) -> None:
    said = "is not a file written by torch.save, or holds more than graphs"
    monkeypatch.setattr(own_graphs, "_complaint", lambda content: said)
    seen = 0
    for content, told in HELD.values():
        torch.save(content, tmp_path / "file.pt")
        with pytest.raises(ValueError, match="expected a PyG Data") as error:
            read_graph_file(tmp_path / "file.pt")
        seen += re.search(told, str(error.value)) is None
    assert seen == 13  # all that are no tensors, lists and dictionaries
