"""The user's own graph: every form of features that people have, and masks that are no split."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import graphtheory
from graphtheory.lab.bench.node_task import OwnNodes


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Sparse C")
def test_features_of_every_kind_are_read_as_float32(form: str) -> None:
    plain = graph()
    found = OwnNodes(graph(FORMS[form](plain.x))).data(0, row_scale=False).x
    found = found.to_dense() if found.layout != torch.strided else found
    assert found.dtype == torch.float32 and torch.equal(found, plain.x.float())
    mine, same = (
        graphtheory.bench(data, ("gt", "gcn"), seeds=1, epochs=2, progress=False).runs
        for data in (graph(FORMS[form](plain.x)), plain)
    )
    losses = [
        [[epoch["val_loss"] for epoch in run.history] for run in runs] for runs in (mine, same)
    ]
    assert losses[0] == losses[1]


def test_bool_features_are_zeros_and_ones() -> None:
    assert OwnNodes(graph(graph().x.bool())).data(0, row_scale=False).x.unique().tolist() == [0, 1]


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
    with pytest.warns(UserWarning, match=rf"data\.{name}: no network for nodes reads it here"):
        found = OwnNodes(data)
    assert found.name == "graph"


@pytest.mark.parametrize("x", [torch.ones(30), torch.ones(30, 2, 2), torch.ones(30, 2) * 1j])
def test_features_of_another_shape_or_complex_are_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match=r"data\.x: got torch\.\w+ \[30.*expected real numbers"):
        OwnNodes(graph(x))


def columns(*parts: str) -> Tensor:
    """Bool [30, S]: the nodes of one letter of each string of 30."""
    return torch.stack([torch.tensor([letter == "1" for letter in part * 10]) for part in parts], 1)


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ((torch.arange(9), columns("010"), columns("001")), r"train_mask: got torch.int64 \[9\]"),
        ((columns("100")[:20], columns("010"), columns("001")), r"train_mask: got torch.bool \[20"),
        (
            (columns("100", "100"), columns("010", "000"), columns("001")),
            "val_mask: no node, expected at least one, in the split of seed 1",
        ),
        (
            (columns("100", "110"), columns("010"), columns("001")),
            "10 nodes are in more than one of .* in the split of seed 1",
        ),
    ],
)
def test_masks_that_are_no_split_are_named(masks: tuple[Tensor, ...], expected: str) -> None:
    named = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    with pytest.raises(ValueError, match=expected):
        OwnNodes(graph(**named))
