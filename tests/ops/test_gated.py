"""Gated sums beside their formula; `tests/conformance` has every backend."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, cliques, ops

BACKENDS = ["numba_csr", "reference"]
TERMS = ["source", "target", "edge"]


def case(seed, num_src, num_dst, num_edges, heads, dim):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(n, (num_edges,), generator=generator) for n in (num_src, num_dst)]
    nb = Neighborhood.from_edge_index(torch.stack(ends), num_src=num_src, num_dst=num_dst)
    rows = {"value": num_src, "source": num_src, "target": num_dst, "edge": num_edges}
    shapes = {name: (n, dim) if name in TERMS else (n, heads, dim) for name, n in rows.items()}
    return nb, {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for name, shape in shapes.items()
    }


def loop(nb, value, source=None, target=None, edge=None):
    """The formula as it stands, one edge after the other."""
    out = [value.new_zeros(value.shape[1:]) for _ in range(nb.num_dst)]
    for e, (j, i) in enumerate(zip(nb.indices.tolist(), nb.targets().tolist(), strict=True)):
        logit = value.new_zeros(value.size(2))
        for term, row in ((source, j), (target, i), (edge, e)):
            logit = logit if term is None else logit + term[row]
        out[i] = out[i] + value[j] / (1 + torch.exp(-logit))
    return torch.stack(out)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 37)),
    terms=st.sets(st.sampled_from(TERMS), min_size=1),
    asked=st.sets(st.sampled_from(["value", *TERMS]), min_size=1),
)
def test_equals_a_loop(backend, seed, sizes, shape, terms, asked) -> None:
    nb, tensors = case(seed, *sizes, *shape)
    tensors = {n: t for n, t in tensors.items() if n == "value" or n in terms}
    leaves = [t.requires_grad_(n in asked) for n, t in tensors.items()]
    leaves = [t for t in leaves if t.requires_grad]
    found = [ops.gated_sum(tensors.pop("value"), nb, **tensors, backend=backend)]
    wanted = [
        loop(
            nb, leaves[0] if "value" in asked else case(seed, *sizes, *shape)[1]["value"], **tensors
        )
    ]
    up = torch.arange(found[0].numel(), dtype=torch.float64).view_as(found[0]).cos()
    if leaves and nb.num_edges:
        for results in (found, wanted):
            results += torch.autograd.grad(results[0], leaves, up)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_of_any_logit(backend, dtype) -> None:
    """Also of logits that no exponential of this type holds; NaN stays in its rows."""
    logits = torch.tensor([-torch.inf, -1e4, -90.0, -30.0, 0.0, 30.0, 90.0, 1e4, torch.inf])
    nb = cliques([1] * len(logits))
    value = torch.ones(len(logits), 1, 20, dtype=dtype, requires_grad=True)
    term = logits.to(dtype)[:, None].repeat(1, 20).requires_grad_()
    out = ops.gated_sum(value, nb, source=term, backend=backend)
    gates = torch.tensor([1 / (1 + math.exp(min(-x, 700))) for x in logits.tolist()])
    assert (out[:, 0] - gates[:, None]).abs().max() < 1e-7
    out.sum().backward()
    torch.testing.assert_close(value.grad, out.detach())
    assert (term.grad - (gates * (1 - gates))[:, None]).abs().max() < 1e-7
    bad = torch.zeros(len(logits), 20, dtype=dtype)
    bad[3, 2] = torch.nan
    out = ops.gated_sum(value, nb, target=bad, backend=backend)
    assert out.isnan().nonzero().tolist() == [[3, 0, 2]]


def test_under_compile_and_vmap() -> None:
    nb, tensors = case(5, 5, 4, 12, 2, 3)
    value = tensors.pop("value").detach()

    def run(value):
        return ops.gated_sum(value, nb, **tensors)

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(value), run(value))
    many = torch.stack([value, 2 * value])
    assert torch.equal(torch.func.vmap(run)(many)[1], run(many[1]))


def test_wrong_input_is_named() -> None:
    nb, value = cliques([2, 2]), torch.zeros(4, 2, 3)
    for options, error, message in (
        ({}, ValueError, "source: got None beside no target and no edge, expected one of them"),
        ({"source": 3}, TypeError, "source: got int, expected a tensor"),
        ({"source": value}, ValueError, r"source: shape \(4, 2, 3\), expected \[4, 3\]"),
        ({"target": value[:3, 0]}, ValueError, r"target: shape \(3, 3\), expected \[4, 3\]"),
        ({"edge": value[:, 0]}, ValueError, r"edge: shape \(4, 3\), expected \[8, 3\]"),
        ({"target": value[:, 0].double()}, TypeError, "target: dtype torch.float64, expected"),
        ({"target": value[:, 0].to("meta")}, ValueError, "target: on meta, expected cpu"),
    ):
        with pytest.raises(error, match=message):
            ops.gated_sum(value, nb, **options)
