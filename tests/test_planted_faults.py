"""The conformance check can fail: each of these faulty ways to run attention is caught by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias, reference
from graphtheory.ops.dropout import draw_seed, dropout_factor
from tests.conformance.check import (
    BIASES,
    BUCKETS,
    GRAPHS,
    Attention,
    assert_conforms,
    definition,
    draw_inputs,
)

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6}
FAULTS: dict[str, tuple[Attention, str]] = {}  # name -> (attention, the tensor that shows it)
Bias = Tensor | BucketedBias | None


def fault(shown_by: str) -> Callable[[Attention], Attention]:
    def plant(run: Attention) -> Attention:
        FAULTS[run.__name__] = run, shown_by
        return run

    return plant


def scores(q: Tensor, k: Tensor, nb: Neighborhood, bias: Bias) -> Tensor:
    logits = q.size(2) ** -0.5 * reference.edge_dot(q, k, nb)
    return logits if bias is None else logits + reference.edge_bias(bias)


def attend(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *,
    bias: Bias, dropout: float, generator: torch.Generator,
    scores: Callable[..., Tensor] = scores,
    softmax: Callable[..., Tensor] = reference.edge_softmax,
    factor: Callable[..., Tensor] = dropout_factor,
) -> Tensor:  # fmt: skip
    """The definition from parts, any of which can be a faulty one."""
    weights = softmax(scores(q, k, nb, bias), nb)
    if dropout > 0:
        weights = weights * factor(dropout, draw_seed(generator), weights)
    return reference.aggregate(weights, v, nb)


def with_gradient(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The same values; the gradient that comes back is changed."""
    same = tensor.clone()
    if same.requires_grad:
        same.register_hook(change)
    return same


def only(nb: Neighborhood, edges: Tensor, bias: Bias) -> tuple[Neighborhood, Bias]:
    """Some of the edges, and their bias."""
    if isinstance(bias, BucketedBias):
        return nb.keep(edges), BucketedBias(bias.bucket[edges], bias.table)
    return nb.keep(edges), None if bias is None else bias[edges]


def with_indices(nb: Neighborhood, indices: Tensor) -> Neighborhood:
    return Neighborhood(nb.indptr, indices, nb.num_src)


@fault("output")
def shuffled_sources(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    return definition(q, k, v, with_indices(nb, nb.indices.roll(1)), **options)


@fault("output")
def dropped_edge(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    kept = torch.arange(nb.num_edges) != nb.num_edges // 2
    nb, options["bias"] = only(nb, kept, options["bias"])
    return definition(q, k, v, nb, **options)


@fault("output")
def dropped_loops(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    nb, options["bias"] = only(nb, nb.indices != nb.targets(), options["bias"])
    return definition(q, k, v, nb, **options)


@fault("output")
def collapsed_duplicates(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    code = nb.targets() * nb.num_src + nb.indices
    first = torch.tensor([c not in code[:e].tolist() for e, c in enumerate(code.tolist())])
    nb, options["bias"] = only(nb, first.bool(), options["bias"])
    return definition(q, k, v, nb, **options)


@fault("output")
def transposed_graph(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    return definition(q, k, v, nb.transpose() if nb.num_src == nb.num_dst else nb, **options)


@fault("output")
def self_added(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    if nb.num_src != nb.num_dst or options["bias"] is not None:
        return definition(q, k, v, nb, **options)
    loops = torch.arange(nb.num_dst).expand(2, -1)
    edges = torch.cat([nb.edge_index(), loops], 1)
    return definition(q, k, v, Neighborhood.from_edge_index(edges, nb.num_dst), **options)


@fault("output")
def last_row_skipped(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    done = torch.arange(nb.num_dst) < nb.num_dst - 1
    return definition(q, k, v, nb, **options) * done[:, None, None]


@fault("output")
def dropped_scale(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    return definition(q, k, v, nb, scale=1.0, **options)


@fault("output")
def dropped_bias(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    return definition(q, k, v, nb, **options)


@fault("output")
def bias_scaled_too(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    def together(q: Tensor, k: Tensor, nb: Neighborhood, bias: Bias) -> Tensor:
        added = 0 if bias is None else reference.edge_bias(bias)
        return q.size(2) ** -0.5 * (reference.edge_dot(q, k, nb) + added)

    return attend(q, k, v, nb, scores=together, **options)


@fault("output")
def next_bucket(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    if isinstance(bias, BucketedBias):
        bias = BucketedBias((bias.bucket + 1) % BUCKETS, bias.table)
    return definition(q, k, v, nb, bias=bias, **options)


@fault("output")
def last_bucket_clipped(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    if isinstance(bias, BucketedBias):
        bias = BucketedBias(bias.bucket.clamp(max=BUCKETS - 2), bias.table)
    return definition(q, k, v, nb, bias=bias, **options)


@fault("output")
def bias_of_the_first_head(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    if isinstance(bias, Tensor):
        bias = bias[:, :1].expand_as(bias)
    return definition(q, k, v, nb, bias=bias, **options)


@fault("output")
def maximum_not_subtracted(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        weight = logits.exp()
        total = weight.new_zeros(nb.num_dst, q.size(1)).index_add(0, nb.targets(), weight)
        return weight / torch.where(total == 0, 1, total)[nb.targets()]

    return attend(q, k, v, nb, softmax=softmax, **options)


@fault("output")
def small_number_in_the_denominator(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        return reference.edge_softmax(logits, nb) / (1 + 1e-4)

    return attend(q, k, v, nb, softmax=softmax, **options)


@fault("output")
def normalized_over_targets(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        turned = nb.transpose()
        weights = reference.edge_softmax(logits[turned.perm], turned)
        return torch.zeros_like(logits).index_copy(0, turned.perm, weights)

    return attend(q, k, v, nb, softmax=softmax, **options)


@fault("output")
def masked_after_the_softmax(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    bias = options["bias"]
    if not isinstance(bias, Tensor):
        return attend(q, k, v, nb, **options)
    masked = bias == -torch.inf

    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        return reference.edge_softmax(logits, nb).masked_fill(masked, 0)

    return attend(q, k, v, nb, softmax=softmax, **options | {"bias": bias.masked_fill(masked, 0)})


@fault("output")
def masked_row_not_a_number(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    out = definition(q, k, v, nb, bias=bias, **options)
    if not isinstance(bias, Tensor):
        return out
    alive = reference.aggregate((bias != -torch.inf).to(v.dtype), torch.ones_like(v), nb) > 0
    return torch.where(alive | (nb.degree() == 0)[:, None, None], out, torch.nan)


@fault("output")
def dropped_head(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    out = definition(q, k, v, nb, **options)
    return torch.cat([out[:, :-1], torch.zeros_like(out[:, -1:])], 1)


@fault("output")
def heads_and_features_mixed(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    mixed = v.transpose(1, 2).reshape(v.shape)
    return definition(q, k, mixed, nb, **options)


@fault("output")
def empty_row_not_written(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    out = definition(q, k, v, nb, **options)
    return torch.where((nb.degree() > 0)[:, None, None], out, torch.empty_like(out))


@fault("output")
def summed_in_float32(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    return definition(q.float(), k.float(), v.float(), nb, **options).to(q.dtype)


@fault("output")
def wrong_type(q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any) -> Tensor:
    out = definition(q, k, v, nb, **options)
    return out.double() if out.dtype == torch.float32 else out


@fault("query")
def gradient_of_query_unscaled(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    return definition(with_gradient(q, lambda g: g * q.size(2) ** 0.5), k, v, nb, **options)


@fault("key")
def gradient_of_key_permuted(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    return definition(q, with_gradient(k, lambda g: g.roll(1, 0)), v, nb, **options)


@fault("query")
def gradient_of_softmax_without_the_mean(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        weights = reference.edge_softmax(logits, nb).detach()
        finite = logits.masked_fill(logits == -torch.inf, 0)
        return weights * (1 + finite - finite.detach())

    return attend(q, k, v, nb, softmax=softmax, **options)


@fault("value")
def gradient_of_value_missing(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    return definition(q, k, with_gradient(v, torch.zeros_like), nb, **options)


@fault("bias")
def gradient_of_bias_missing(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    if isinstance(bias, Tensor):
        bias = bias.detach()
    return definition(q, k, v, nb, bias=bias, **options)


@fault(r"bias\.table")
def gradient_of_table_from_one_edge(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, *, bias: Bias, **options: Any
) -> Tensor:
    if isinstance(bias, BucketedBias) and nb.num_edges:
        first, others = bias.bucket.long().tensor_split([1])
        bias = torch.cat([bias.table[first], bias.table.detach()[others]])
    return definition(q, k, v, nb, bias=bias, **options)


@fault("output")
def dropout_not_rescaled(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def factor(p: float, seed: Tensor, like: Tensor) -> Tensor:
        return dropout_factor(p, seed, like) * (1 - p)

    return attend(q, k, v, nb, factor=factor, **options)


@fault("output")
def dropout_by_another_seed(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def factor(p: float, seed: Tensor, like: Tensor) -> Tensor:
        return dropout_factor(p, seed + 1, like)

    return attend(q, k, v, nb, factor=factor, **options)


@fault("output")
def dropout_the_same_for_all_heads(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    def factor(p: float, seed: Tensor, like: Tensor) -> Tensor:
        return dropout_factor(p, seed, like)[:, :1]

    return attend(q, k, v, nb, factor=factor, **options)


@fault("query")
def dropout_not_in_the_backward_pass(
    q: Tensor, k: Tensor, v: Tensor, nb: Neighborhood, **options: Any
) -> Tensor:
    whole = definition(q, k, v, nb, **options | {"dropout": 0.0})
    return definition(q, k, v, nb, **options).detach() + whole - whole.detach()


def suite(attention: Attention) -> Iterator[None]:
    """A small part of what the backends go through."""
    for make in GRAPHS.values():
        for bias in BIASES:
            for dtype, dropout in ((torch.float32, 0.0), (torch.float64, 0.4)):
                nb = make(7)
                inputs = draw_inputs(nb, 3, 5, bias, dtype)
                assert_conforms(attention, nb, inputs, dropout=dropout, tolerance=TOLERANCE)
                yield


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str) -> None:
    attention, shown_by = FAULTS[name]
    with pytest.raises(AssertionError, match=rf"^{shown_by}: (error|torch)"):
        list(suite(attention))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("attention", [definition, attend, ops.attention])
def test_what_is_right_passes(attention: Attention) -> None:
    assert len(list(suite(attention))) == len(GRAPHS) * len(BIASES) * 2


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 30
