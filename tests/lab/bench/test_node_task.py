"""The user's own graph, of every form that people have, and row scaling without a search."""

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import graphtheory
from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.node_task import NodeBenchTask, OwnNodes, scales_rows
from graphtheory.lab.datasets.node_readers import as_sparse_rows


def graph(x: Tensor | None = None, **masks: Tensor) -> Data:
    """A ring of 30 nodes in two classes, which the counts in their features tell."""
    nodes = torch.arange(30)
    edges = torch.stack([nodes, (nodes + 1) % 30])
    counts = torch.stack([nodes // 15 * 3, 3 - nodes // 15 * 3, nodes % 2], 1)
    return Data(x=counts if x is None else x, y=nodes // 15, edge_index=edges, **masks)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "float64": Tensor.double, "float16": Tensor.half, "bfloat16": Tensor.bfloat16,
    "int64": Tensor.long, "uint8": lambda x: x.to(torch.uint8),
    "requires grad": lambda x: x.float().requires_grad_(),
    "coo": lambda x: x.float().to_sparse(), "csr": lambda x: x.float().to_sparse_csr(),
    "csc": lambda x: x.double().to_sparse_csc(),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain_losses() -> list[list[float]]:
    return losses(graph())


def losses(data: Data) -> list[list[float]]:
    runs = graphtheory.bench(data, ("gt", "gcn"), seeds=1, epochs=2, progress=False).runs
    return [[epoch["val_loss"] for epoch in run.history] for run in runs]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Sparse C")
def test_features_of_any_kind_become_float32(form: str, plain_losses: list[list[float]]) -> None:
    plain = graph()
    found = OwnNodes(graph(FORMS[form](plain.x))).data(0, row_scale=False).x
    found = found.to_dense() if found.layout != torch.strided else found
    assert found.dtype == torch.float32 and torch.equal(found, plain.x.float())
    assert losses(graph(FORMS[form](plain.x))) == plain_losses
    assert OwnNodes(graph(plain.x.bool())).data(0, row_scale=False).x.unique().tolist() == [0, 1]


@pytest.mark.parametrize("form", [Tensor.int, Tensor.bool, lambda y: y[:, None]])
def test_classes_of_every_kind_are_read_as_int64(form: Callable[[Tensor], Tensor]) -> None:
    data = graph()
    data.y = form(data.y)
    found = OwnNodes(data).data(0)
    assert found.y.dtype == torch.int64 and torch.equal(found.y, graph().y)
    assert found.num_classes == 2


@pytest.mark.parametrize("name", ["edge_weight", "edge_attr"])
def test_attributes_of_edges_are_not_ignored_in_silence(name: str) -> None:
    data = graph()
    data[name] = torch.ones(30)
    with pytest.warns(UserWarning, match=rf"data\.{name}: the models for nodes here ignore it"):
        found = OwnNodes(data)
    assert found.name == "graph"
    data[name] = torch.ones(29)
    with pytest.raises(ValueError, match=rf"data\.{name}: got 29 rows, expected 30"):
        OwnNodes(data)


@pytest.mark.parametrize("metric", ["f1", "rmse", "words"])
def test_a_metric_that_nodes_do_not_have_is_refused(metric: str) -> None:
    with pytest.raises(ValueError, match=f"metric: got '{metric}', expected accuracy or rocauc"):
        OwnNodes(graph(), metric=metric)


def test_a_column_that_drowns_the_others_is_named() -> None:
    x = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] *= 5000
    with pytest.warns(UserWarning, match=r"data\.x: columns \[1\] of 3 .* up to \d,\d+") as seen:
        OwnNodes(graph(x))
    assert len(seen) == 1
    x[:, 1] /= x[:, 1].max()
    for scaled in (x, 5000 * x, 0.0001 * x, torch.zeros(30, 3)):
        OwnNodes(graph(scaled))  # warnings are errors


@pytest.mark.parametrize("data", ["friends.csv", Path("friends.parquet"), pandas.DataFrame()])
def test_tables_are_answered_with_the_page_that_reads_them(data: object) -> None:
    wanted = r"data: got (friends.*|a DataFrame), expected a PyG Data; docs/howto/own-data\.md"
    with pytest.raises(ValueError, match=wanted):
        graphtheory.bench(data)
    assert (Path(__file__).parents[3] / "docs/howto/own-data.md").is_file()


def columns(*parts: str) -> Tensor:
    """Bool [30, S]: the nodes of one letter of each string of 30."""
    return torch.stack([torch.tensor([letter == "1" for letter in part * 10]) for part in parts], 1)


def split(*masks: Tensor) -> dict[str, Tensor]:
    return dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))


@pytest.mark.parametrize(("given", "expected"), [
    *(({"x": x}, r"data\.x: got torch\.\w+ \[30.*expected real numbers")
      for x in (torch.ones(30), torch.ones(30, 2, 2), torch.ones(30, 2) * 1j)),
    (split(torch.arange(9), columns("010"), columns("001")), r"train_mask: got torch.int64 \[9\]"),
    (split(columns("100")[:20], columns("010"), columns("001")),
     r"train_mask: got torch.bool \[20"),
    (split(columns("100", "100"), columns("010", "000"), columns("001")),
     "val_mask: no node, expected at least one, in the split of seed 1"),
    (split(columns("100", "110"), columns("010"), columns("001")),
     "10 nodes are in more than one of .* in the split of seed 1"),
])  # fmt: skip
def test_other_features_and_masks_are_named(given: dict[str, Tensor], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        OwnNodes(graph(**given))


def words(label_by: str) -> Data:
    """Counts of ten words, whose mix or whose sum is the class, on nodes without edges."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.rand(600, 10, generator=generator)
    length = torch.exp(4 * torch.rand(600, 1, generator=generator))
    by = {"mix": mix[:, 0] / mix.sum(1), "length": length[:, 0]}[label_by]
    x, part = 1 + mix / mix.sum(1, keepdim=True) * length, torch.arange(600) % 6
    masks = split(part < 4, part == 4, part == 5)
    return Data(x=x, y=(by > by.median()).long(), edge_index=torch.empty(2, 0).long(), **masks)


def test_rows_are_scaled_where_the_mix_decides_and_not_where_the_sum_does() -> None:
    for otherwise in (True, False):
        assert scales_rows(words("mix"), otherwise)
        assert not scales_rows(words("length"), otherwise)
    data = words("mix")
    data.x = torch.full_like(data.x, 2.0)  # says nothing, scaled or not
    for otherwise in (True, False):
        assert scales_rows(data, otherwise) is otherwise
    for label_by in ("mix", "length"):  # sparse features say the same
        data = words(label_by)
        found = scales_rows(data, False)
        data.x = as_sparse_rows(data.x)
        assert scales_rows(data, False) is found
    data = words("mix")  # and test labels are not asked
    data.y[data.test_mask] = 1 - data.y[data.test_mask]
    assert scales_rows(data, False)


@pytest.mark.parametrize("kind", ["negative", "small", "several labels", "one class"])
def test_no_fit_where_scaling_cannot_help(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(node_task, "LogisticRegression")
    data = words("mix")
    if kind == "negative":
        data.x[0, 0] = -1.0
    elif kind == "small":
        data.x = data.x / data.x.sum(1, keepdim=True) / 2
    elif kind == "several labels":
        data.y = torch.stack([data.y, 1 - data.y], 1)
    else:
        data.y[data.train_mask] = 0
    expected = kind in ("several labels", "one class")  # otherwise nothing would change
    assert scales_rows(data, True) is expected and not scales_rows(data, False)


def test_default_options_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (True, False):
        monkeypatch.setattr(NodeBenchTask, "scales_rows", answer)
        problem = NodeBenchTask("karate")
        problem.kept = False
        assert {problem.config(model)[0].row_scale for model in problem.models} == {answer}
