"""Readouts of graphs, against loops, PyG's pooling and eq. (B.224)."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory.graph import cliques
from graphtheory.nn import GraphReadout, SPDTransformerConv
from graphtheory.nn.batches import graph_cliques, graph_sizes

SIZES = torch.tensor([3, 0, 4, 1, 0])
BATCH = torch.arange(5).repeat_interleave(SIZES)
POOLS = {"sum": pyg.global_add_pool, "mean": pyg.global_mean_pool, "max": pyg.global_max_pool}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POOLS)
def test_gives_what_pyg_pools(name, dtype) -> None:
    x = (torch.randn(8, 3, dtype=dtype) - 2).requires_grad_()  # a maximum below zero
    weight = torch.randn(5, 3, dtype=dtype)
    wanted = POOLS[name](x, BATCH, 5)
    ptr = torch.cat([SIZES.new_zeros(1), SIZES.cumsum(0)])
    for found in (GraphReadout(name)(x, BATCH, 5), GraphReadout(name)(x, ptr=ptr)):
        torch.testing.assert_close(found, wanted)
        grads = [torch.autograd.grad((out * weight).sum(), x, retain_graph=True)[0]
                 for out in (found, wanted)]  # fmt: skip
        torch.testing.assert_close(*grads)


def test_one_graph_and_the_token_that_is_last() -> None:
    x = torch.randn(8, 3)
    torch.testing.assert_close(GraphReadout("sum")(x), x.sum(0, keepdim=True))
    x, batch = torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 2, 2])
    assert torch.equal(GraphReadout("token")(x, batch), x[[2, 3, 5]])
    with pytest.raises(ValueError, match="batch: graph 1 has no node"):
        GraphReadout("token")(torch.randn(8, 3), BATCH, 5)


@pytest.mark.parametrize(("name", "mean"), [("sum", False), ("mean", True)])
def test_equation_b_224(name, mean) -> None:
    """K sum_n a^T relu(W_O sum_s W_V x_s softmax_n(x_s^T W_K^T W_Q x_n + u^T b))."""
    sizes, d, m = [4, 2], 5, 3
    x = torch.randn(6, d, dtype=torch.float64)
    conv = SPDTransformerConv(
        d, m, num_buckets=3, root_weight=False, bias=False, scale=1.0
    ).double()
    torch.nn.init.normal_(conv.bucket_bias.table)
    w_o, a = torch.randn(7, m, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    nb = cliques(sizes)
    distance = torch.randint(4, (nb.num_edges,), dtype=torch.uint8)
    of_nodes = (conv(x, nb, distance) @ w_o.t()).relu() @ a
    batch = torch.tensor([0, 0, 0, 0, 1, 1])
    found = GraphReadout(name)(of_nodes[:, None], batch)
    w_k, w_q, w_v = (lin.weight for lin in (conv.lin_key, conv.lin_query, conv.lin_value))
    b, first, edge = conv.bucket_bias.table[:, 0], 0, 0
    for graph, size in enumerate(sizes):
        mine, total = x[first : first + size], 0.0
        for x_n in mine:
            u = distance[edge : edge + size].long().clamp(max=2)
            mixed = ((mine @ w_k.T) @ (w_q @ x_n) + b[u]).softmax(0) @ (mine @ w_v.T)
            total, edge = total + a @ (w_o @ mixed).relu(), edge + size
        first += size
        torch.testing.assert_close(found[graph, 0], total / size if mean else total)


def test_wrong_input_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="reduce: got 'median', expected"):
        GraphReadout("median")
    with pytest.raises(ValueError, match="reduce: got 3, expected one of"):
        GraphReadout(3)
    with pytest.raises(ValueError, match="batch: entry 1 is 0 behind 1"):
        GraphReadout("sum")(torch.ones(2, 1), torch.tensor([1, 0]))
    with pytest.raises(
        ValueError, match=r"batch: shape \(1,\), expected one entry per node: \[2\]"
    ):
        GraphReadout("sum")(torch.ones(2, 1), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"batch: got 4, expected graphs in 0\.\.1"):
        graph_sizes(torch.tensor([0, 4]), 2)
    with pytest.raises(ValueError, match="batch: got -1, expected graphs of 0 or more"):
        graph_sizes(torch.tensor([-1, 0]))
    with pytest.raises(TypeError, match=r"batch: got torch\.float32, expected an int64"):
        graph_sizes(torch.tensor([0.0]))


def test_cliques_of_a_batch_are_kept_while_it_lives() -> None:
    first = graph_cliques(BATCH, 8, BATCH.device)
    assert graph_cliques(BATCH, 8, BATCH.device) is first
    assert graph_cliques(None, 8, BATCH.device).blocks == (1, 8, 8)
    assert torch.equal(first.degree(), SIZES[BATCH])


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_readouts_of_16_bits_add_up_in_float32(reduce: str, dtype: torch.dtype) -> None:
    x, batch = torch.full((3000, 1), 0.5, dtype=dtype), torch.zeros(3000, dtype=torch.int64)
    found = GraphReadout(reduce)(x, batch)
    assert found.dtype is dtype
    assert found.item() == pytest.approx(0.5 if reduce == "mean" else 1500, rel=0.01)


@pytest.mark.parametrize("ptr", [[0, 4, 1000], [2, 4], [0, 2], [0, 3, 1, 4], []])
def test_pointers_that_leave_nodes_out_are_refused(ptr: list[int]) -> None:
    x = torch.arange(4.0)[:, None]
    with pytest.raises(ValueError, match=r"ptr: .* that run from 0 to 4, the number of nodes"):
        GraphReadout("sum")(x, ptr=torch.tensor(ptr, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"x: shape \(4,\), expected \[num_nodes, features\]"):
        GraphReadout("sum")(x[:, 0], torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_derivatives_of_any_order_and_mode(reduce: str) -> None:
    x = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    for given in (dict(batch=BATCH, num_graphs=5), dict(ptr=torch.tensor([0, 3, 3, 8])), {}):
        cubes = partial(lambda given, x: GraphReadout(reduce)(x, **given) ** 3, given)
        assert torch.autograd.gradcheck(cubes, x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(cubes, x)


def test_an_exported_readout_takes_other_graphs() -> None:
    x, auto = torch.randn(7, 2), {0: torch.export.Dim.AUTO}
    shapes = {"x": auto, "batch": auto}
    given = (x[:5], torch.tensor([0, 0, 1, 1, 1]))
    program = torch.export.export(GraphReadout("mean"), given, dynamic_shapes=shapes).module()
    batch = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    torch.testing.assert_close(program(x, batch), pyg.global_mean_pool(x, batch))
