"""Which backend runs, and what the others object."""

import re
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphtheory import Neighborhood, causal, cliques, ops, star
from graphtheory.ops import backend as dispatch
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS, BY_OPERATION, OPERATIONS, Backend, register
from graphtheory.ops.backends import triton_csr
from graphtheory.ops.call import AttentionCall


def call(
    nb: Neighborhood, dropout: float = 0.0, device: str = "cpu", *, k: int | None = None,
    dim: int = 2, dtype: torch.dtype | None = None,
) -> AttentionCall:  # fmt: skip
    query = torch.zeros(nb.num_dst, 1, dim, device=device, dtype=dtype)
    key = torch.zeros(nb.num_src, 1, dim, device=device, dtype=dtype)
    return AttentionCall(query, key, key, nb.to(device), None, 1.0, dropout, None, k)


GRAPH = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)


def test_names_in_the_order_of_choice() -> None:
    every = ["blocks", "numba_csr", "triton_csr", "torch_csr", "reference"]
    assert ops.backend_names() == ops.backend_names(ops.attention) == every
    assert ops.backend_names(ops.topk_attention) == [n for n in every if n != "triton_csr"]
    for operation in ("edge_dot", ops.edge_softmax, ops.aggregate, ops.additive_attention):
        assert ops.backend_names(operation) == every[1:]
    with pytest.raises(ValueError, match="operation: got 'softmax', expected a function of ops"):
        ops.backend_names("softmax")


@pytest.mark.parametrize(("asked", "name"), [
    (call(cliques([16, 16])), "blocks"),
    (call(cliques([16, 16]), dropout=0.5), "blocks"),
    (call(cliques([60, 50]), dropout=0.5), "numba_csr"),
    (call(cliques([3, 3])), "numba_csr"),
    (call(cliques([60, 50])), "blocks"),
    (call(cliques([3, 2])), "numba_csr"),
    (call(cliques([3, 2]), device="meta"), "blocks"),
    (call(causal([200, 150])), "blocks"),
    (call(causal([20, 15])), "numba_csr"),
    (call(star([1000])), "numba_csr"),
    (call(cliques([0, 0])), "numba_csr"),
    (call(GRAPH), "numba_csr"),
    (call(GRAPH, device="meta"), "torch_csr"),
    (call(cliques([3, 3]), dropout=0.5, k=2), "blocks"),
    (call(cliques([3, 2]), k=2), "numba_csr"),
    (call(cliques([3, 3]), device="meta", k=2), "torch_csr"),
])  # fmt: skip
def test_the_first_that_can_is_taken(asked: AttentionCall, name: str) -> None:
    assert dispatch.choose(asked).name == name


@pytest.mark.parametrize("name", ["blocks", "numba_csr", "torch_csr", "reference"])
def test_a_name_is_obeyed(name: str) -> None:
    assert dispatch.choose(call(cliques([3, 3])), name).name == name


@pytest.mark.parametrize(
    ("asked", "name", "words"),
    [
        (call(GRAPH), "blocks", "not made of complete or causal sets"),
        (call(cliques([2, 3]), 0.5), "blocks", "dropout is drawn by edge and head"),
        (call(cliques([2, 2]), 0.5, "meta"), "blocks", "dropout is drawn by edge and head"),
        (call(cliques([0, 0])), "blocks", "there are no edges"),
        (call(GRAPH, 0.5), "blocks", "sets; dropout is drawn"),  # all reasons at once
        (call(GRAPH, device="meta"), "numba_csr", "tensors lie on meta, expected cpu"),
        (call(GRAPH), "triton_csr", "tensors lie on cpu, expected cuda"),
        (call(cliques([0, 0]), k=2), "blocks", "there are no edges"),
        (call(GRAPH, device="meta", k=2), "blocks", "on meta, expected cuda; .* not made of equal"),
        (
            call(GRAPH)._replace(neighborhood=GRAPH.to("meta")),
            "triton_csr",
            "tensors lie on cpu and meta, expected one device",
        ),
    ],
)
def test_a_name_that_cannot_says_why(asked: AttentionCall, name: str, words: str) -> None:
    with pytest.raises(NotImplementedError, match=f"backend '{name}' cannot run.*{words}"):
        dispatch.choose(asked, name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="got 'cuda', expected one of blocks, numba_csr, triton_csr, torch_csr"
    ):
        dispatch.choose(call(GRAPH), "cuda")


def test_on_a_gpu_triton_comes_before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = call(GRAPH, device="meta")
    assert dispatch.choose(asked).name == "torch_csr"
    monkeypatch.setattr(triton_csr, "triton_objections", lambda device: [])
    assert dispatch.choose(asked).name == "triton_csr"


def test_k_nearest_on_blocks_says_what_a_gpu_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_csr, "triton_objections", lambda device: [])
    of_gpu = SimpleNamespace(shared_memory_per_block_optin=99 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: of_gpu)
    asked = call(cliques([3, 3]), dropout=0.5, device="meta", k=2)
    assert dispatch.choose(asked).name == "blocks"
    long = {name: call(cliques([513]), device="meta", k=2, dtype=getattr(torch, name))
            for name in ("float32", "bfloat16")}  # fmt: skip
    assert dispatch.choose(long["bfloat16"]).name == "blocks"
    with pytest.raises(NotImplementedError, match=r"513 sources, in float32 .* at most 512"):
        dispatch.choose(long["float32"], "blocks")
    of_gpu.shared_memory_per_block_optin = 227 * 1024
    assert dispatch.choose(long["float32"]).name == "blocks"
    for asked, words in (
        (call(cliques([3, 3]), device="meta", k=2, dtype=torch.float64), "sums .* in float32"),
        (call(cliques([3, 3]), device="meta", k=2, dim=129), "head_dim is 129, .* at most 128"),
        (call(cliques([1025]), device="meta", k=2), "rows have 1025 sources, .* at most"),
        (call(GRAPH, device="meta", k=2), "not made of equal complete blocks"),
    ):
        assert dispatch.choose(asked).name == "torch_csr"
        with pytest.raises(NotImplementedError, match=words):
            dispatch.choose(asked, "blocks")
    for large in (
        call(cliques([1025]), k=2, dim=129),
        call(cliques([3, 3]), k=2, dtype=torch.float64),
    ):
        assert dispatch.choose(large).name == "blocks"  # on a CPU


class Doubled(Backend):
    """Twice the definition, of one operation and in float32 alone."""

    name = "doubled"
    operations = frozenset({"edge_dot"})

    def unsupported(self, call: Any) -> list[str]:
        wide = call.tensors[0].dtype != torch.float32
        return ["it has float32 alone"] if wide else []

    def run(self, call: Any) -> torch.Tensor:
        return 2 * reference.edge_dot(*call.tensors, call.neighborhood)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    names, operations = dict(BACKENDS), dict(BY_OPERATION)
    register(Doubled())
    yield
    BACKENDS.clear()
    BACKENDS.update(names)
    BY_OPERATION.update(operations)


@pytest.mark.usefixtures("doubled")
def test_a_backend_is_added_by_one_line() -> None:
    x = torch.rand(2, 1, 3)
    assert ops.backend_names("edge_dot")[-1] == "doubled" and "doubled" not in ops.backend_names()
    twice = ops.edge_dot(x, x, GRAPH, backend="doubled")
    torch.testing.assert_close(twice, 2 * ops.edge_dot(x, x, GRAPH))
    with pytest.raises(NotImplementedError, match="cannot run this call: it has float32 alone"):
        ops.edge_dot(x.double(), x.double(), GRAPH, backend="doubled")
    with pytest.raises(ValueError, match="the name 'doubled' is taken"):
        register(Doubled())


def asked(operation: str) -> tuple[Any, ...]:
    """The function and arguments of a call on two cliques."""
    nb, x = cliques([3, 3]), torch.rand(6, 2, 4)
    edges, ends = torch.rand(nb.num_edges, 2), torch.rand(6, 2)
    arguments = {
        "edge_dot": (x, x, nb), "edge_softmax": (edges, nb), "aggregate": (edges, x, nb),
        "relu_sum": (x, torch.rand(nb.num_edges, 2, 4), nb),
        "gated_sum": (x, nb), "additive_score": (x, x, x[0], nb),
        "additive_attention": (x, ends, ends, nb), "attention": (x, x, x, nb),
        "topk_attention": (x, x, x, nb, 2),
    }  # fmt: skip
    options = {"target": x[:, 0]} if operation == "gated_sum" else {}
    return getattr(ops, operation), options, *arguments[operation]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_backend_of_an_operation_is_obeyed_or_says_why(operation: str) -> None:
    function, options, *arguments = asked(operation)
    wanted = function(*arguments, **options, backend="reference")
    explanation, names = ops.explain(function, *arguments, **options), ops.backend_names(function)
    assert set(explanation.reasons) | {explanation.chosen} == set(names)
    for name in names:
        reason = explanation.reasons.get(name, "")
        if reason.startswith("cannot run it: "):
            words = re.escape(reason.removeprefix("cannot run it: "))
            with pytest.raises(NotImplementedError, match=words):
                function(*arguments, **options, backend=name)
        else:
            torch.testing.assert_close(function(*arguments, **options, backend=name), wanted)
    assert ("triton_csr" in explanation.reasons) == (operation != "topk_attention")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_explained_is_what_runs(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, options, *arguments = asked(operation)
    explanation, ran = ops.explain(function, *arguments, **options), []
    for name, backend in BACKENDS.items():
        run = backend.run
        noted = partial(lambda name, run, call: ran.append(name) or run(call), name, run)
        monkeypatch.setattr(backend, "run", noted)
        monkeypatch.setattr(backend, "runner", lambda operation, noted=noted: noted)
    function(*arguments, **options)
    assert ran == [explanation.chosen]


@pytest.mark.parametrize("nb", [GRAPH, cliques([3, 3]), cliques([16] * 2), causal([200, 150])])
@pytest.mark.parametrize("k", [None, 2])
def test_an_explanation_agrees_with_the_choice(nb: Neighborhood, k: int | None) -> None:
    x, rest = torch.zeros(nb.num_dst, 1, 2), () if k is None else (k,)
    explanation = ops.explain(
        ops.attention if k is None else ops.topk_attention, x, x, x, nb, *rest
    )
    assert explanation.chosen == dispatch.choose(call(nb, k=k)).name


def test_an_explanation_has_a_line_for_each_backend_and_draws_nothing() -> None:
    x = torch.zeros(2, 1, 3)
    explanation = ops.explain(ops.attention, x, x, x, GRAPH, dropout=0.5)
    head, *lines = str(explanation).splitlines()
    assert head == "attention runs on numba_csr"
    assert [line.split()[0] for line in lines] == ops.backend_names()
    assert "complete or causal sets; dropout is drawn by edge" in lines[0]
    assert lines[1].endswith("runs this call")
    assert lines[-1].endswith("could run it, but comes after numba_csr")
    x, generator = torch.zeros(2, 1, 3), torch.Generator()
    before, drawn = torch.get_rng_state(), generator.get_state()
    ops.explain(ops.attention, x, x, x, GRAPH, dropout=0.5, generator=generator)
    ops.explain(ops.additive_attention, x, x[..., 0], None, GRAPH, dropout=0.5)
    assert torch.equal(torch.get_rng_state(), before) and torch.equal(generator.get_state(), drawn)


def test_what_cannot_be_explained_says_so() -> None:
    x = torch.zeros(2, 1, 3)
    with pytest.raises(ValueError, match=r"operation: got .* expected a function of ops: edge_dot"):
        ops.explain(torch.relu, x)
    with pytest.raises(TypeError, match="backend: explain speaks of every backend"):
        ops.explain(ops.edge_dot, x, x, GRAPH, backend="numba_csr")
    with pytest.raises(ValueError, match="key: shape"):
        ops.explain(ops.edge_dot, x, x[..., :2], GRAPH)


class Misspelled(Backend):
    name = "misspelled"
    operations = frozenset({"attention", "atention"})


@pytest.mark.parametrize(("backend", "error", "message"), [
    (Misspelled(), ValueError, "operations: misspelled declares atention, expected some of"),
    (Misspelled, TypeError, "expected an instance of Backend with a name"),
    (Backend(), TypeError, "expected an instance of Backend with a name"),
])  # fmt: skip
def test_what_cannot_be_a_backend_is_refused_and_leaves_no_trace(backend, error, message) -> None:
    with pytest.raises(error, match=message):
        register(backend)
    assert "misspelled" not in BACKENDS
    assert all(b.name != "misspelled" for known in BY_OPERATION.values() for b in known)


def test_an_operation_is_explained_by_name_and_no_other_function_is_called() -> None:
    x, nb = torch.zeros(6, 1, 4), cliques([3, 3])
    assert str(ops.explain("attention", x, x, x, nb)) == str(
        ops.explain(ops.attention, x, x, x, nb)
    )

    def attention(*args: object, **options: object) -> None:
        pytest.fail("a foreign function was called")

    with pytest.raises(ValueError, match=r"expected ops\.attention"):
        ops.explain(attention, x, x, x, nb)
