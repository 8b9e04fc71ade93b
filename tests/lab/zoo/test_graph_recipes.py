"""The networks of GNN+ and OGB, beside the same networks of plain torch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, relu
from torch_geometric.data import Batch

from graphtheory.lab.zoo.graph_models import GraphConfig
from graphtheory.lab.zoo.graph_recipes import EdgeSum
from tests.lab.zoo.test_graph_models import PLAIN, assert_same_alone, build

POST = GraphConfig(hidden=8, layers=2, dropout=0.2, stack="post", walk=3, walk_width=3)
OGB = GraphConfig(
    hidden=8, layers=3, dropout=0.2, stack="ogb", activation="relu", residual=False, ffn=False,
    head_layers=1,
)  # fmt: skip
BATCH = Batch.from_data_list(PLAIN)
SOURCE, TARGET = BATCH.edge_index


def summed(values: Tensor, at: Tensor, rows: int = BATCH.num_nodes) -> Tensor:
    return values.new_zeros(rows, values.size(1)).index_add(0, at, values)


def test_edge_sums_leave_the_node_itself_out() -> None:
    torch.manual_seed(0)
    layer, x, edges = EdgeSum(4), torch.randn(16, 4), torch.randn(len(SOURCE), 4)
    expected = summed(relu(layer.linear(x)[SOURCE] + edges), TARGET)
    torch.testing.assert_close(layer(x, BATCH.edge_index, edges), expected)


@pytest.mark.parametrize("name", ["gcn", "gine", "gatedgcn"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("ffn", [False, True])
def test_the_stack_of_gnn_plus_by_hand(name: str, residual: bool, ffn: bool) -> None:
    model = build(name, replace(POST, residual=residual, ffn=ffn, head_layers=3))
    x = torch.cat([model.encoder(BATCH), model.walk(BATCH.random_walk_pe)], 1)
    assert x.shape == (16, 8)
    edges = model.edge_encoder(BATCH.edge_attr)
    for block in model.blocks:
        conv = block.conv
        if name == "gatedgcn":
            gates = conv.lin_key(x)[TARGET] + conv.lin_query(x)[SOURCE] + conv.lin_edge(edges)
            sums, opened = conv.lin_value(x)[SOURCE] * gates.sigmoid(), gates.sigmoid()
            out = conv.lin_skip(x) + summed(sums, TARGET) / (summed(opened, TARGET) + 1e-6)
            out = gelu(block.norm(out + conv.bias))
            states = gelu(block.edge_norm(gates))
            edges = edges + states if residual else states
        elif name == "gcn":
            out = gelu(block.norm(summed(relu(conv.linear(x)[SOURCE] + edges), TARGET)))
        else:  # without a norm, and with another activation
            out = relu(conv.nn(x + summed(relu(x[SOURCE] + edges), TARGET)))
        x = x + out if residual else out
        if ffn:
            x = block.ffn_norm(x)
            wider, _, _, narrower, _ = block.ffn
            x = block.last_norm(x + narrower(gelu(wider(x))))
    x = summed(x, BATCH.batch, 3) / BATCH.ptr.diff()[:, None]
    _, first, _, _, second, _, _, last = model.head
    torch.testing.assert_close(model(BATCH), last(gelu(second(gelu(first(x))))))


@pytest.mark.parametrize("name", ["gcn", "gine"])
@pytest.mark.parametrize("virtual", [False, True])
def test_the_network_of_ogb_by_hand(name: str, virtual: bool) -> None:
    model = build(name, replace(OGB, virtual_node=virtual))
    x = model.encoder(BATCH)
    degree = TARGET.bincount(minlength=16) + 1.0
    state = torch.zeros(3, 8)
    for i, block in enumerate(model.blocks):
        if virtual:
            x = x + state[BATCH.batch]
            if i < 2:
                given = state + summed(x, BATCH.batch, 3)
                for module in model.virtual[i]:
                    given = module(given)
                state = given
        edges = block.edge_encoder(BATCH.edge_attr)  # another one in each block
        if name == "gcn":
            own = block.conv.linear(x)
            scale = (degree[SOURCE] * degree[TARGET]).rsqrt()[:, None]
            out = summed(scale * relu(own[SOURCE] + edges), TARGET)
            out = out + relu(own + block.conv.root) / degree[:, None]
        else:
            sums = summed(relu(x[SOURCE] + edges), TARGET)
            out = block.conv.nn((1 + block.conv.eps) * x + sums)
        x = block.norm(out)
        x = x if i == 2 else relu(x)
    x = summed(x, BATCH.batch, 3) / BATCH.ptr.diff()[:, None]
    (last,) = model.head
    torch.testing.assert_close(model(BATCH), last(x))


@pytest.mark.parametrize("name", ["gcn", "gine", "gatedgcn"])
@pytest.mark.parametrize("config", [
    replace(POST, virtual_node=True, head_width="halving", head_layers=3),
    replace(POST, edge_features=False, readout="sum", walk=0, activation="relu"),
    replace(OGB, virtual_node=True, walk=3, walk_width=2),
])  # fmt: skip
def test_graphs_alone_and_in_a_batch_and_every_part_learns(name: str, config: GraphConfig) -> None:
    refused = None if name == "gcn" or config.edge_features else "edge_features"
    if name == "gatedgcn" and config.stack == "ogb":
        refused = "stack: got 'ogb', expected one of post"
    if refused:
        with pytest.raises(ValueError, match=refused):
            build(name, config)
        return
    model = build(name, config)
    assert_same_alone(model)
    model.train()(BATCH).square().sum().backward()
    unread = {n for n, p in model.named_parameters() if p.grad is None}
    last = f"blocks.{len(model.blocks) - 1}.edge_norm."  # of states that nobody reads
    assert unread == ({f"{last}weight", f"{last}bias"} if name == "gatedgcn" else set())


@pytest.mark.parametrize(("name", "changed", "message"), [
    ("gt", {"stack": "post"}, "stack: got 'post', expected one of pre"),
    ("gcn", {"stack": "pre", "ffn": False}, "ffn: got False, expected True with stack='pre'"),
    ("gcn", {"degree": True}, "degree: got True, expected False with stack='post'"),
    ("gcn", {"activation": "elu"}, "activation: got 'elu', expected one of gelu, relu"),
    ("gcn", {"walk_width": 8}, "walk_width: got 8, expected 1 or more, and less than hidden=8"),
])  # fmt: skip
def test_options_that_a_stack_lacks(name: str, changed: dict[str, Any], message: str) -> None:
    base = replace(POST, walk_width=28) if changed.get("stack") == "pre" else POST
    with pytest.raises(ValueError, match=message):
        build(name, replace(base, **changed))
