"""What an op tells torch of its results before it runs is what comes: shapes, types, strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops import EdgeFeatures
from graphtheory.ops.backends.cpu import memory
from tests.conformance.check import GRAPHS, draw_inputs
from tests.conformance.check_edges import FORMS, draw_edges

HEADS, DIM = 2, 3
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


class _Ours(TorchDispatchMode):
    """Keeps the calls of this library's ops."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.namespace == "graphtheory":
            self.calls.append((func, args, found))
        return found


def described(tensor: Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.numel() else None
    return tuple(tensor.shape), tensor.dtype, strides, tensor.device.type


def assert_told(run: Callable[[], tuple[Tensor, ...]], *names: str) -> None:
    """Every op that `run` and its backward pass call tells what it gives; these are among them."""
    with _Ours() as seen:
        outs = [out for out in run() if out.requires_grad]
        torch.autograd.backward(outs, [torch.randn_like(out) for out in outs])
    called = {func._schema.name.partition("::")[2] for func, *_ in seen.calls}
    assert called >= set(names), called
    for func, args, found in seen.calls:
        with FakeTensorMode() as mode:
            told = func(*tree_map_only(Tensor, mode.from_tensor, args))
        pairs = zip(tree_leaves(told), tree_leaves(found), strict=True)
        for place, (a, b) in enumerate(pairs):
            assert isinstance(a, FakeTensor)
            assert described(a) == described(b), f"{func}: result {place}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_attention(
    backend: str, kept: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
    nb = GRAPHS["more sources"](7)
    for bias in ("none", "edges", "buckets"):
        x = draw_inputs(nb, HEADS, DIM, bias, dtype)
        assert_told(
            lambda x=x: (
                ops.attention(x.query, x.key, x.value, nb, bias=x.bias, backend=backend),
            ),
            "attention", "attention_backward",
        )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_attention_with_features_of_edges(
    backend: str, kept: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
    nb = GRAPHS["more sources"](7)
    for form in FORMS:
        for bias in ("none", "edges", "buckets"):
            given = draw_edges(nb, HEADS, DIM, form, bias, dtype)
            x = given.inputs

            def run(x: Any = x, edges: Any = given.edges) -> tuple[Tensor, ...]:
                out, sums = ops.attention(
                    x.query, x.key, x.value, nb, bias=x.bias, edges=edges, backend=backend
                )
                return out, *sums

            assert_told(run, "edge_attention", "edge_attention_backward")


def test_features_that_take_no_gradient() -> None:
    nb = GRAPHS["more sources"](7)
    given = draw_edges(nb, HEADS, DIM, "by edge", "none", torch.float32)
    x, (e,) = given.inputs, given.edges
    fixed = EdgeFeatures(e.features.detach(), e.query)

    def run() -> tuple[Tensor, ...]:
        out, sums = ops.attention(x.query, x.key, x.value, nb, edges=fixed, backend="numba_csr")
        return out, *sums

    assert_told(run, "edge_attention_backward")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_primitives(backend: str, dtype: torch.dtype) -> None:
    nb = GRAPHS["more sources"](7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).requires_grad_()

    query, key = draw(nb.num_dst, HEADS, DIM), draw(nb.num_src, HEADS, DIM)
    logits = draw(nb.num_edges, HEADS)
    assert_told(lambda: (ops.edge_dot(query, key, nb, backend=backend),), "edge_dot")
    assert_told(lambda: (ops.edge_softmax(logits, nb, backend=backend),), "edge_softmax")
    for reduce in ("sum", "mean", "max", "min"):
        for weights in (logits, None):
            assert_told(
                lambda w=weights, r=reduce: (ops.aggregate(w, key, nb, r, backend=backend),)
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
@pytest.mark.parametrize("given_order", [False, True])
def test_relu_sum(given_order: bool, backend: str, dtype: torch.dtype) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2, 0], [1, 0, 1, 2]]), num_nodes=3)
    value, features = (torch.randn(n, HEADS, DIM).to(dtype).requires_grad_() for n in (3, 4))
    options = {"given_order": given_order, "backend": backend}
    assert_told(lambda: (ops.relu_sum(value, features, nb, **options),))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("terms", ["source", "source target", "edge"])
def test_gated_sum(terms: str, dtype: torch.dtype) -> None:
    nb = GRAPHS["more sources"](7)
    rows = {"source": nb.num_src, "target": nb.num_dst, "edge": nb.num_edges}
    value = torch.randn(nb.num_src, HEADS, DIM).to(dtype).requires_grad_()
    given = {t: torch.randn(rows[t], DIM).to(dtype).requires_grad_() for t in terms.split()}
    assert_told(lambda: (ops.gated_sum(value, nb, **given, backend="numba_csr"),))


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
@pytest.mark.parametrize("parts", ["sent", "received", "edge"])
def test_additive(parts: str, backend: str) -> None:
    nb = GRAPHS["more sources"](7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape).requires_grad_()

    value, sent = draw(nb.num_src, HEADS, DIM), draw(nb.num_src, HEADS)
    received = None if parts == "sent" else draw(nb.num_dst, HEADS)
    edge = draw(nb.num_edges, HEADS) if parts == "edge" else None
    assert_told(
        lambda: (ops.additive_attention(value, sent, received, nb, edge=edge, backend=backend),)
    )
    target, att = draw(nb.num_dst, HEADS, DIM), draw(HEADS, DIM)
    edges = {"edge_features": draw(nb.num_edges, 4), "edge_matrix": draw(HEADS, 4, DIM)}
    given = edges if parts == "edge" else {}
    assert_told(lambda: (ops.additive_score(value, target, att, nb, backend=backend, **given),))
    edges["edge_features"].requires_grad_(False)
    assert_told(lambda: (ops.additive_score(value, target, att, nb, backend=backend, **given),))


@pytest.mark.parametrize("nb", [cliques([4, 4]), GRAPHS["more sources"](7)])
@pytest.mark.parametrize("bias", ["none", "edges", "buckets"])
def test_k_nearest(bias: str, nb: Neighborhood) -> None:
    x = draw_inputs(nb, HEADS, DIM, bias)
    assert_told(lambda: (ops.topk_attention(x.query, x.key, x.value, nb, 2, bias=x.bias),))
