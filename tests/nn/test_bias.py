import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch_geometric.data import Batch, Data

from graphtheory import Neighborhood
from graphtheory.graph import TOKEN
from graphtheory.nn.bias import BucketBias, JointBias, PathEncoding
from graphtheory.ops.reference import edge_bias
from graphtheory.structure import UNREACHABLE, shortest_path_edges


@given(
    num_buckets=st.sampled_from([1, 2, 5, 20, 254]),
    hops=st.lists(st.integers(0, 254), max_size=20),
    dtype=st.sampled_from([torch.uint8, torch.int32, torch.int64]),
)
def test_distances_fall_into_their_buckets(num_buckets, hops, dtype) -> None:
    hops = [*hops, UNREACHABLE]
    module = BucketBias(num_buckets, 2)
    bucket, table = module(torch.tensor(hops, dtype=dtype))
    assert bucket.dtype == torch.uint8
    assert bucket.tolist() == [min(z, num_buckets - 1) for z in hops] and table is module.table
    assert table.shape == (num_buckets, 2)


def test_starts_at_zero_and_returns_to_it_and_shows_its_state() -> None:
    module = BucketBias(4, 3)
    assert torch.equal(module.table, torch.zeros(4, 3))
    with torch.no_grad():
        module.table.fill_(2)
    module.reset_parameters()
    assert torch.equal(module.table, torch.zeros(4, 3))
    assert module(torch.empty(0, dtype=torch.long)).bucket.shape == (0,)
    module = BucketBias(4, 2, own_token=True)
    assert repr(module) == "BucketBias(num_buckets=4, heads=2)"
    assert list(module.state_dict()) == ["table"] and module.is_bucket_bias


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((0, 1), {}, "num_buckets: got 0, expected at least 1"),
    ((3, 0), {}, "heads: got 0, expected at least 1"),
    ((1.5, 1), {}, "num_buckets: got 1.5, expected at least 1, a whole number"),
    ((254, 2), {"own_token": True}, "num_buckets: got 254, expected at most 253 with"),
])  # fmt: skip
def test_sizes_out_of_range_are_named(arguments, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        BucketBias(*arguments, **options)


def test_more_buckets_than_a_byte_counts() -> None:
    module = BucketBias(529, 2)
    with torch.no_grad():
        module.table.copy_(torch.arange(529 * 2.0).view(529, 2))
    found = module(torch.tensor([0, 255, 528, 600]))
    assert torch.equal(found, module.table[[0, 255, 528, 528]])


@pytest.mark.parametrize(("distance", "error", "message"), [
    (torch.rand(3), TypeError, "distance: torch.float32 of shape .3,., expected integer hops"),
    (torch.zeros(2, 2).long(), TypeError, "distance: torch.int64 of shape .2, 2."),
    (torch.tensor([2, -1]), ValueError, "distance: got -1, expected hops of 0 or more"),
])  # fmt: skip
def test_distances_that_are_none_are_named(distance, error, message) -> None:
    with pytest.raises(error, match=message):
        BucketBias(4, 1)(distance)


def test_pairs_with_a_token_have_a_bucket_of_their_own() -> None:
    hops = torch.tensor([0, 1, 2, 200, TOKEN, UNREACHABLE], dtype=torch.uint8)
    module = BucketBias(3, 2, own_token=True)
    assert module.table.shape == (4, 2) and module(hops).bucket.tolist() == [0, 1, 2, 2, 3, 2]
    assert BucketBias(3, 2)(hops).bucket.tolist() == [0, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("sizes", [(3, 4), (16, 16), (20, 13), (2, 3, 4)])
def test_a_joint_bias_is_the_sum_of_its_parts(sizes) -> None:
    joint = JointBias(*(BucketBias(size, 2) for size in sizes))
    hops = torch.randint(0, 256, (50, len(sizes)), dtype=torch.uint8)
    with torch.no_grad():
        for part in joint.parts:
            part.table.normal_()
    wanted = sum(part.table[hops[:, k].long().clamp(max=sizes[k] - 1)]
                 for k, part in enumerate(joint.parts))  # fmt: skip
    made = joint(hops)
    assert isinstance(made, torch.Tensor) == (math.prod(sizes) > 256)
    found = edge_bias(made)
    torch.testing.assert_close(found, wanted)
    weight, tables = torch.randn(50, 2), list(joint.parameters())
    grads = [torch.autograd.grad((t * weight).sum(), tables, retain_graph=True)
             for t in (found, wanted)]  # fmt: skip
    torch.testing.assert_close(*grads)
    joint.reset_parameters()
    assert not any(table.any() for table in joint.parameters())


def test_parts_of_a_joint_bias_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parts: got 2 with heads \[1, 2\]"):
        JointBias(BucketBias(3, 1), BucketBias(3, 2))
    with pytest.raises(ValueError, match="parts: got 0"):
        JointBias()
    with pytest.raises(ValueError, match=r"distance: shape \(4,\), expected \[num_edges, 1\]"):
        JointBias(BucketBias(3, 1))(torch.zeros(4, dtype=torch.uint8))


def test_layers_of_equal_buckets_sort_a_distance_once() -> None:
    distance = torch.tensor([0, 1, 7])
    with torch.inference_mode():
        first = BucketBias(3, 1)(distance)
    second = BucketBias(3, 2)(distance)
    assert first.bucket is second.bucket and not second.bucket.is_inference()
    assert BucketBias(5, 1)(distance).bucket.tolist() == [0, 1, 4]
    distance[0] = 2
    assert BucketBias(3, 1)(distance).bucket.tolist() == [2, 1, 2]
    distance[0] = -1
    with pytest.raises(ValueError, match="got -1"):
        BucketBias(3, 1)(distance)


def test_a_trace_sorts_distances_that_were_known_before() -> None:
    bias = BucketBias(3, 1)
    known, other = torch.tensor([[0, 1], [7, 2]], dtype=torch.uint8)
    bias(known)
    for trace in (torch.jit.trace, lambda call, given: make_fx(call)(*given)):
        traced = trace(lambda distance: bias(distance).bucket.clone(), (known,))
        assert traced(other).tolist() == bias(other).bucket.tolist() == [2, 2]


# Path encodings against a loop over pairs and steps -----------------------------------------------

STEPS, HEADS = 3, 2


def draw(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(max(nodes, 1), (2, edges), generator=generator)
    paths = shortest_path_edges(Neighborhood.from_edge_index(edge_index, nodes), STEPS)
    return Data(
        x=torch.zeros(nodes, 1), edge_index=edge_index, paths=paths.flatten(0, 1),
        edge_attr=torch.randn(edges, 4, generator=generator, dtype=torch.float64),
        kinds=torch.randint(3, (edges, 2), generator=generator),
    )  # fmt: skip


GRAPHS = [draw(5, 9, 0), draw(1, 0, 1), draw(7, 10, 2), draw(4, 3, 3)]


def loop(graph, products):
    """products(edge, step) -> [heads], averaged along each path."""
    rows = []
    for path in graph.paths.tolist():
        terms = [products(edge, step) for step, edge in enumerate(path) if edge >= 0]
        rows.append(sum(terms) / len(terms) if terms else torch.zeros(HEADS).double())
    return torch.stack(rows)


def test_floats_equal_the_loop_with_gradients() -> None:
    encoding = PathEncoding(4, HEADS, STEPS).double()
    weight = encoding.products.weight.view(STEPS, HEADS, 4)
    batch = Batch.from_data_list(GRAPHS)
    attr = batch.edge_attr.clone().requires_grad_()
    first, wanted = 0, []
    for graph in GRAPHS:
        mine = attr[first : first + graph.num_edges]
        wanted.append(loop(graph, lambda e, n, mine=mine: weight[n] @ mine[e]))
        first += graph.num_edges
    found, wanted = encoding(attr, batch.paths, batch.edge_index, batch.batch), torch.cat(wanted)
    torch.testing.assert_close(found, wanted)
    assert found.any()
    cotangent = torch.randn_like(found)
    leaves = [attr, encoding.products.weight]
    torch.testing.assert_close(
        torch.autograd.grad((found * cotangent).sum(), leaves),
        torch.autograd.grad((wanted * cotangent).sum(), leaves),
    )


def test_categories_equal_the_loop() -> None:
    encoding = PathEncoding((3, 3), HEADS, STEPS).double()
    table = encoding.products.table.view(6, STEPS, HEADS)
    for graph in GRAPHS:
        kinds = graph.kinds
        wanted = loop(graph, lambda e, n, k=kinds: table[k[e, 0], n] + table[3 + k[e, 1], n])
        torch.testing.assert_close(encoding(kinds, graph.paths), wanted)


def test_wrong_paths_are_refused_in_words() -> None:
    encoding, batch = PathEncoding(4, HEADS, STEPS).double(), Batch.from_data_list(GRAPHS)
    attr, index = batch.edge_attr, batch.edge_index
    with pytest.raises(ValueError, match=r"expected integers \[num_pairs, 3\]"):
        encoding(attr, batch.paths[:, :2])
    with pytest.raises(ValueError, match="edge_index: got None beside a batch"):
        encoding(attr, batch.paths, batch=batch.batch)
    with pytest.raises(ValueError, match="paths: 3 rows, expected 91"):
        encoding(attr, batch.paths[:3], index, batch.batch)
    with pytest.raises(ValueError, match="edges of several graphs alternate"):
        encoding(attr, batch.paths, index.flip(1), batch.batch)
    wrong = batch.paths.clone()
    wrong[25, 0] = 0  # the graph of pair 25 has no edges
    with pytest.raises(IndexError, match="pair 25, step 0 is edge 0, expected one of the 0"):
        encoding(attr, wrong, index, batch.batch)
    with pytest.raises(IndexError, match="is edge 3, expected one of the 3 edges"):
        encoding(attr[:3], torch.tensor([[3, -1, -1]]))
    with pytest.raises(ValueError, match="heads: got 0"):
        PathEncoding(4, 0)


@pytest.mark.parametrize("edges", [2, 3])
@pytest.mark.parametrize("count", [254, 255, 256])
def test_a_joint_bias_of_one_part_is_that_part(count: int, edges: int) -> None:
    part = BucketBias(count, 2)
    torch.nn.init.normal_(part.table)
    found, distance = JointBias(part)(torch.arange(edges)[:, None]), torch.arange(edges)
    torch.testing.assert_close(edge_bias(found), edge_bias(part(distance)))
    torch.testing.assert_close(edge_bias(part(distance.to(torch.int8))), part.table[:edges])
