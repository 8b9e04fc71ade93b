"""Ids, row pointers and shapes that do not fit are refused before a compiled loop reads by them."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, neighbor_lists, nn, ops, structure
from graphtheory.ops import projected
from tests.ops.declared import Calls, declared_operators

N, M, E, H, D = 4, 5, 9, 2, 3
B = "numba_csr"
Call = tuple[dict[str, Tensor], Callable[[Neighborhood], Tensor]]


def _graph() -> Neighborhood:
    """Nine edges from five sources to four targets, of which one has none."""
    src = torch.tensor([0, 1, 2, 3, 4, 4, 4, 0, 1])
    dst = torch.tensor([0, 0, 0, 1, 1, 3, 3, 3, 3])
    return Neighborhood.from_edge_index(torch.stack([src, dst]).flip(1), num_src=M, num_dst=N)


def _leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def _calls() -> dict[str, Call]:
    q, k, v, w = _leaf(N, H, D), _leaf(M, H, D), _leaf(M, H, D), _leaf(E, H)
    bucket = (torch.arange(E) % 3).to(torch.uint8)
    bias = ops.BucketedBias(bucket, _leaf(3, H))
    row, edges = torch.arange(E) % 4, _leaf(E, 2)
    table = ops.EdgeFeatures(_leaf(4, 2), _leaf(N, H, 2), row)
    x, z, matrix = _leaf(M, 4), _leaf(N, 4), _leaf(H, 2, D)
    maps = [(_leaf(H * D, 4), _leaf(H * D)) for _ in range(3)]
    return {
        "edge_dot": ({}, lambda nb: ops.edge_dot(q, k, nb, backend=B)),
        "edge_softmax": ({}, lambda nb: ops.edge_softmax(w, nb, backend=B)),
        "aggregate": ({}, lambda nb: ops.aggregate(w, v, nb, backend=B)),
        "max": ({}, lambda nb: ops.aggregate(w, v, nb, "max", backend=B)),
        "attention": (
            {"bucket": bucket}, lambda nb: ops.attention(q, k, v, nb, bias=bias, backend=B)
        ),
        "edges": ({"row": row}, lambda nb: ops.attention(q, k, v, nb, edges=table, backend=B)[0]),
        "topk": ({}, lambda nb: ops.topk_attention(q, k, v, nb, 2, backend=B)),
        "additive": ({}, lambda nb: ops.additive_attention(v, x[:, :H], z[:, :H], nb, backend=B)),
        "score": ({}, lambda nb: ops.additive_score(k, q, matrix[:, 0], nb, backend=B)),
        "relu_sum": (
            {}, lambda nb: ops.relu_sum(v, _leaf(E, H, D), nb, given_order=True, backend=B)
        ),
        "gated": ({}, lambda nb: ops.gated_sum(
            v, nb, source=k[:, 0], target=q[:, 0], edge=_leaf(E, D), backend=B
        )),
        "mapped": ({}, lambda nb: ops.relu_sum(
            v, edges, nb, edge_matrix=matrix, given_order=True, backend=B
        )),
        "projected": ({"bucket": bucket}, lambda nb: projected.attention(
            x, z, maps, matrix, edges, nb, nb.perm, bias, 1.0, 0.0, None
        )),
    }  # fmt: skip


NAMES = tuple(_calls())


@cache
def _operators() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Each operator with loops on a CPU, and valid arguments of it."""
    with Calls() as recorded:
        for _, run in _calls().values():
            run(_graph()).square().sum().backward()
        q = _leaf(6, H, D)
        bias = ops.BucketedBias((torch.arange(18) % 3).to(torch.uint8), _leaf(3, H))
        ops.topk_attention(
            q, q, q, cliques([3, 3]), 2, bias=bias, backend="blocks"
        ).sum().backward()
    calls = recorded.seen
    return {op.name(): (op, args) for op, args, _ in calls if "csr" not in op.name()}


def _copied(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_copied(one) for one in given]
    return given.detach().clone() if isinstance(given, Tensor) else given


WORDS = {n: of for n, of in declared_operators().items() if n.startswith("graphtheory::")}
every = pytest.mark.parametrize("name", sorted(WORDS))


def _words(op: Any) -> tuple[str, ...]:
    return WORDS[op.name()]


def _by_source(op: Any) -> bool:
    """Whether it reads the rows of sources, too, and not only hands them on."""
    return op.name().endswith(("_backward", "_by_source"))


def _ids(op: Any, args: list[Any]) -> list[tuple[str, Tensor]]:
    """What loops look up by, of the arguments of an operator."""
    found = []
    for word, given in zip(_words(op), args, strict=True):
        if word == "parts":
            softmax = "::edge_softmax" in op.name()  # which reads row pointers alone
            read = given[:1] if softmax else given if _by_source(op) else given[:2]
            found += [(f"{word}[{k}]", part) for k, part in enumerate(read)]
        elif word in ("order", "bucket", "row") and given is not None:
            found.append((word, given))
    return [(name, ids) for name, ids in found if ids.numel()]


def test_the_operators_are_all_those_that_read_ids() -> None:
    assert _operators().keys() == WORDS.keys()


@every
def test_an_operator_refuses_every_id_out_of_range(name: str) -> None:
    op, given = _operators()[name]
    numbered = enumerate(_ids(op, list(given)))
    for (k, (what, ids)), value in product(numbered, (-1, 255, 10**9, 2**62)):
        if value > torch.iinfo(ids.dtype).max or value < torch.iinfo(ids.dtype).min:
            continue
        for place in {0, ids.numel() // 2, ids.numel() - 1}:
            args = _copied(list(given))
            _ids(op, args)[k][1][place] = value
            with pytest.raises((IndexError, ValueError), match=r"expected"):
                op(*args)
                pytest.fail(f"{name}: {what}[{place}] = {value} is accepted")
    op(*_copied(list(given)))


@every
def test_an_operator_refuses_falling_pointers_and_lists_of_other_lengths(name: str) -> None:
    op, given = _operators()[name]
    for k, (what, _) in enumerate(_ids(op, list(given))):
        args = _copied(list(given))
        if what in ("parts[0]", "parts[2]"):
            found = _ids(op, args)[k][1]
            found[1] = found[2] + 1
            with pytest.raises(ValueError, match="without decreasing"):
                op(*args)
        elif what not in ("bucket", "row"):
            found = _ids(op, args)[k][1]
            _put(args, found, found[:-1].clone())
            with pytest.raises((ValueError, IndexError), match="expected"):
                op(*args)


def _put(args: list[Any], old: Tensor, new: Tensor) -> None:
    for k, arg in enumerate(args):
        if arg is old:
            args[k] = new
        elif isinstance(arg, list):
            args[k] = [new if one is old else one for one in arg]


# Whose first axis is free: rows of tables and what has no other tensor beside it.
_FREE = {("table", "rows"), ("logits", "heads"), ("value", "dim"), ("features", "dim")}


@every
def test_an_operator_refuses_other_shapes(name: str) -> None:
    for way in ("rows", "axes", "heads"):
        assert _refuses_shapes(name, way) or way == "heads", way


def _refuses_shapes(name: str, way: str) -> int:
    """The number of arguments that were tried with another shape."""
    op, given = _operators()[name]
    tried = 0
    for k, (word, arg) in enumerate(zip(_words(op), given, strict=True)):
        called = op._schema.arguments[k].name
        axis = {"rows": 0, "axes": 0, "heads": 1}[way]
        if not isinstance(arg, Tensor) or not word.isupper() or arg.dim() <= axis:
            continue
        if (called, way) in _FREE or (way == "heads" and "H" not in word[1:2]):
            continue
        if (name, way) == ("graphtheory::gated_sum", "heads"):  # no other tensor has them
            continue
        args = _copied(list(given))
        args[k] = args[k][None] if way == "axes" else args[k].narrow(axis, 0, arg.size(axis) - 1)
        tried += 1
        with pytest.raises((ValueError, IndexError), match=r"shape|expected"):
            op(*args)
            pytest.fail(f"{name}: {way} of {called} are accepted")
    return tried


@pytest.mark.parametrize("short", ["features", "value"])
def test_sums_of_relu_refuse_features_and_sources_that_do_not_cover_the_edges(short: str) -> None:
    op, given = _operators()["graphtheory::relu_sum_backward"]
    args = _copied(list(given))
    grad, needs, value, features, order, parts, backend = args
    order = order[:0]  # edge e has row e
    op(grad, needs, value, features, order, parts, backend)
    value, features = (value, features[:-1]) if short == "features" else (value[:-1], features)
    with pytest.raises((ValueError, IndexError), match="expected"):
        op(grad, needs, value, features, order, parts, backend)


def _change(nb: Neighborhood, name: str) -> None:
    """Past torch's count of changes."""
    turned = nb._turned()
    assert turned.perm is not None and nb.perm is not None
    ids = {"indices": nb.indices, "indptr": nb.indptr, "t_indptr": turned.indptr,
           "targets": turned.indices, "perm": turned.perm, "order": nb.perm}[name]  # fmt: skip
    ids.numpy()[2] = 10**6


@pytest.mark.parametrize("name", NAMES)
def test_a_call_refuses_ids_that_were_changed_before_it(name: str) -> None:
    _, run = _calls()[name]
    for changed in ("indptr",) if name == "edge_softmax" else ("indices", "indptr"):
        nb = _graph()
        getattr(nb, changed).numpy()[2] = 10**6
        with pytest.raises((IndexError, ValueError), match="expected"):
            run(nb)
            pytest.fail(f"{changed} are not looked at")


@pytest.mark.parametrize(
    ("name", "changed"), [(name, key) for name in NAMES for key in _calls()[name][0]]
)
def test_a_call_refuses_row_numbers_that_were_changed(name: str, changed: str) -> None:
    ids, run = _calls()[name]
    out = run(_graph())
    ids[changed].numpy()[2] = 77
    with pytest.raises(IndexError, match=r"77, expected 0\.\.[23]"):
        run(_graph())
    with pytest.raises(IndexError, match=r"77, expected 0\.\.[23]"):
        out.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_a_backward_pass_refuses_ids_that_were_changed_before_it(name: str) -> None:
    read = ["indices", "indptr", "t_indptr", "targets", "perm"]
    if name in ("relu_sum", "mapped", "projected"):
        read = ["order"]
    _, run = _calls()[name]
    for changed in ["indptr"] if name == "edge_softmax" else read:
        nb = _graph()
        out = run(nb)
        _change(nb, changed)
        with pytest.raises((IndexError, ValueError), match="expected"):
            out.sum().backward()
            pytest.fail(f"{changed} are not looked at")


@pytest.mark.parametrize("name", ["key", "query", "value"])
def test_a_backward_pass_refuses_another_shape_of_what_it_saved(name: str) -> None:
    nodes = {"query": _leaf(N, H, D), "key": _leaf(M, H, D), "value": _leaf(M, H, D)}
    out = ops.attention(*nodes.values(), _graph(), backend=B)
    nodes[name].data = nodes[name].data[:1]
    with pytest.raises(ValueError, match="has the shape"):
        out.sum().backward()


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.GATConv(3, 2, heads=2, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


@pytest.mark.parametrize("way", ["compile", "export"])
@pytest.mark.parametrize("bad", [-1, 7, 2**62])
def test_programs_refuse_ids_out_of_range(way: str, bad: int) -> None:
    layer, x, edges = _Layer().eval(), torch.randn(5, 3), torch.tensor([[0, 1, 2], [1, 2, 4]])
    if way == "compile":
        program: Any = torch.compile(layer, backend="eager", fullgraph=True)
    else:
        program = torch.export.export(layer, (x, edges)).module()
    with torch.no_grad():
        torch.testing.assert_close(program(x, edges), layer(x, edges))
        for side in range(2):
            wrong = edges.clone()
            wrong[side, 1] = bad
            with pytest.raises(IndexError, match="expected"):
                program(x, wrong)


@pytest.mark.parametrize("use", [
    lambda nb: ops.aggregate(_leaf(3, 1), _leaf(3, 1, 2), nb),
    lambda nb: ops.attention(*[_leaf(3, 1, 2)] * 3, nb),
    lambda nb: nb.targets(), lambda nb: nb.transpose(), structure.shortest_path_distance,
])  # fmt: skip
@pytest.mark.parametrize("name", ["indptr", "indices"])
def test_a_used_neighborhood_that_was_changed_is_refused(use: Any, name: str) -> None:
    for value in (0, 2):  # all in range: what was remembered would be of another graph
        nb = Neighborhood(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 1, 0]))
        use(nb)
        use(nb)
        getattr(nb, name).numpy()[1] = value
        with pytest.raises(ValueError, match="changed in place"):
            use(nb)


def test_a_neighborhood_has_ids_of_its_own() -> None:
    indptr, indices, perm = torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([0, 1])
    nb = Neighborhood(indptr, indices, perm=perm)
    for given in (indptr, indices, perm):
        given.fill_(10**9)
    assert (nb.indptr.tolist(), nb.indices.tolist()) == ([0, 1, 2], [1, 0])
    assert nb.perm is not None and nb.perm.tolist() == [0, 1]
    lists = torch.tensor([[1, 0], [0, 1]])
    nb = neighbor_lists(lists, num_src=2)
    lists.fill_(10**9)
    assert nb.indices.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("bad", [-1, 3, 10**9, 2**62])
def test_rows_and_edges_that_are_picked_lie_in_range(bad: int) -> None:
    nb = Neighborhood(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 1, 0]))
    with pytest.raises(IndexError, match=r"expected .* in 0\.\.2"):
        nb.rows(torch.tensor([0, bad]))
    with pytest.raises(IndexError, match=r"expected .* in 0\.\.2"):
        nb.pick(torch.tensor([0, 2]), torch.tensor([0, bad]))
    with pytest.raises(ValueError, match="row pointers"):
        nb.pick(torch.tensor([0, bad]), torch.tensor([0, 1]))


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_a_number_of_buckets_needs_buckets(backend: str) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    by_source, x, weights = nb.transpose(), torch.randn(3, 1, 4), torch.ones(3, 1)
    parts = [nb.indptr, nb.indices, by_source.indptr, by_source.indices, by_source.perm]
    table = torch.zeros(10**6, 1)
    with pytest.raises(ValueError, match="got None with a table of 1000000 rows"):
        torch.ops.graphtheory.attention_backward(
            x, weights, None, "11111", x, x, x, None, table, None, None, parts, 1.0, 0.0, backend
        )


@pytest.mark.parametrize("k", [0, -1])
def test_a_choice_of_no_edge_is_refused(k: int) -> None:
    nb, x = cliques([3]), torch.randn(3, 1, 4)
    with pytest.raises(ValueError, match=f"k: got {k}"):
        torch.ops.graphtheory.top_edges(x, x, None, [nb.indptr, nb.indices], k, 1.0, "numba_csr")
    with pytest.raises(ValueError, match=f"k: got {k}"):
        torch.ops.graphtheory.topk_blocks(
            x, x, x, None, None, None, None, [1, 3, 3], k, 1.0, 0.0, "numba_csr"
        )


@pytest.mark.parametrize("shape", [(0, 1), (3, 1), ()])
def test_an_order_of_other_axes_is_refused(shape: tuple[int, ...]) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    tensors = torch.randn(3, 1, 4), torch.randn(3, 2), torch.randn(1, 2, 4)
    order = torch.zeros(shape, dtype=torch.int64)
    with pytest.raises(ValueError, match="order: shape"):
        torch.ops.graphtheory.mapped_relu_sum(*tensors, order, [nb.indptr, nb.indices], "numba_csr")


def test_gradients_refuse_edges_by_source_that_are_absent() -> None:
    nb, x = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3), torch.ones(3, 1)
    value, none = torch.randn(3, 1, 4), nb.indptr.new_empty(0)
    parts = [nb.indptr, nb.indices, none, none, none]
    ops_of = torch.ops.graphtheory
    with pytest.raises(ValueError, match="t_indptr: empty"):
        ops_of.additive_attention_backward(
            value, x, None, "1111", value, x, x, None, None, parts, 0.2, 0.0, "numba_csr"
        )
    ops_of.attention_backward(  # gradients of the query alone need none
        value, x, None, "10000", *(value,) * 3, *(None,) * 4, parts, 1.0, 0.0, "numba_csr"
    )


def test_values_that_shrink_before_the_backward_pass_are_refused_on_sealed_rows() -> None:
    edges = torch.tensor([[0, 1, 2, 39], [0, 1, 2, 0]])
    nb = Neighborhood.from_edge_index(edges, num_src=40, num_dst=40)._seal()
    for _ in range(2):  # also by a plan
        query, key, value = torch.randn(40, 1, 3, requires_grad=True), *torch.randn(2, 40, 1, 3)
        out = ops.attention(query, key, value, nb)  # whose backward pass reads no edges by source
        key.data, value.data = torch.randn(2, 2, 1, 3).unbind(0)
        with pytest.raises((IndexError, ValueError)):
            out.sum().backward()
