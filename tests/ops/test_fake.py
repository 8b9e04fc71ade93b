"""What an op tells torch of its results before it runs is what comes: shapes, types, strides."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from graphtheory import Neighborhood, ops
from graphtheory.ops import EdgeFeatures
from graphtheory.ops.backends.cpu import memory
from tests.conformance.check import GRAPHS, Inputs, draw_inputs
from tests.conformance.check_edges import FORMS, draw_edges
from tests.ops.declared import Calls
from tests.ops.test_every_operation import OPERATIONS, WITH_SETS, graph_of

HEADS, DIM = 2, 3
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def described(tensor: Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.numel() else None
    return tuple(tensor.shape), tensor.dtype, strides, tensor.device.type


def assert_told(run: Callable[[], tuple[Tensor, ...]], *names: str) -> None:
    """Every op that `run` and its backward pass call tells what it gives; these are among them."""
    with Calls() as calls:
        outs = [out for out in run() if out.requires_grad]
        torch.autograd.backward(outs, [torch.randn_like(out) for out in outs])
    called = {func._schema.name.partition("::")[2] for func, *_ in calls.seen}
    assert called and called >= set(names), called
    for func, args, found in calls.seen:
        with FakeTensorMode() as mode:
            told = func(*tree_map_only(Tensor, mode.from_tensor, args))
        pairs = zip(tree_leaves(told), tree_leaves(found), strict=True)
        for place, (a, b) in enumerate(pairs):
            assert isinstance(a, FakeTensor)
            assert described(a) == described(b), f"{func}: result {place}"


def attend(nb: Neighborhood, x: Inputs, backend: str, edges: Any = None) -> tuple[Tensor, ...]:
    """The output, and the sums of features of edges."""
    out = ops.attention(
        x.query, x.key, x.value, nb, bias=x.bias, backend=backend,
        **{} if edges is None else {"edges": edges},
    )  # fmt: skip
    return (out,) if edges is None else (out[0], *out[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_attention_without_and_with_features_of_edges(backend, kept, dtype, monkeypatch) -> None:
    if not kept:
        monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
    nb = GRAPHS["more sources"](7)
    for bias in ("none", "edges", "buckets"):
        x = draw_inputs(nb, HEADS, DIM, bias, dtype)
        assert_told(partial(attend, nb, x, backend), "attention", "attention_backward")
        for form in FORMS:
            given = draw_edges(nb, HEADS, DIM, form, bias, dtype)
            run = partial(attend, nb, given.inputs, backend, given.edges)
            assert_told(run, "edge_attention", "edge_attention_backward")


def test_features_that_take_no_gradient() -> None:
    nb = GRAPHS["more sources"](7)
    given = draw_edges(nb, HEADS, DIM, "by edge", "none", torch.float32)
    (e,) = given.edges
    fixed = EdgeFeatures(e.features.detach(), e.query)
    assert_told(partial(attend, nb, given.inputs, "numba_csr", fixed), "edge_attention_backward")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "graph", "backend"),
    [*((n, "more sources", b) for n in OPERATIONS for b in OPERATIONS[n].backends
       if b != "reference"), *(case for case in WITH_SETS if case[1] == "equal")],
)  # fmt: skip
def test_every_operation(name: str, graph: str, backend: str, dtype: torch.dtype) -> None:
    nb = graph_of(graph, 7)
    leaves = [t.detach().to(dtype).requires_grad_() for t in OPERATIONS[name].leaves(nb)]
    assert_told(lambda: (OPERATIONS[name].run(nb, backend, *leaves),))
    if name.endswith("with edges"):  # whose features may take no gradient
        *others, features, matrix = leaves
        given = *others, features.detach(), matrix
        assert_told(lambda: (OPERATIONS[name].run(nb, backend, *given),))
