"""Which backend runs, and what the others object."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphtheory import Neighborhood, causal, cliques, ops, star
from graphtheory.ops import dispatch
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
    assert ops.backend_names() == ["blocks", "numba_csr", "triton_csr", "torch_csr", "reference"]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
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
    ],
)
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
            replace(call(GRAPH), neighborhood=GRAPH.to("meta")),
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


def test_without_numba_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "find_spec", lambda name: None)
    assert dispatch.choose(call(GRAPH)).name == "torch_csr"
    assert dispatch.choose(call(cliques([3, 2]))).name == "blocks"
    with pytest.raises(NotImplementedError, match="numba is not installed"):
        dispatch.choose(call(GRAPH), "numba_csr")


def test_on_a_gpu_triton_comes_before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = call(GRAPH, device="meta")
    assert dispatch.choose(asked).name == "torch_csr"
    monkeypatch.setattr(dispatch, "triton_objections", lambda device: [])
    assert dispatch.choose(asked).name == "triton_csr"


def test_k_nearest_on_blocks_says_what_a_gpu_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_objections", lambda device: [])
    asked = call(cliques([3, 3]), dropout=0.5, device="meta", k=2)
    assert dispatch.choose(asked).name == "blocks"
    for asked, words in (
        (call(cliques([3, 3]), device="meta", k=2, dtype=torch.float64), "sums .* in float32"),
        (call(cliques([3, 3]), device="meta", k=2, dim=129), "head_dim is 129, .* at most 128"),
        (call(cliques([1025]), device="meta", k=2), "rows have 1025 senders, .* at most"),
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
