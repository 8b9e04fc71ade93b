"""The conformance check can fail: each of these faulty ways to run attention is caught by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
    NARROW,
    Attention,
    assert_conforms,
    definition,
    draw_inputs,
)

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6}
FAULTS: dict[str, tuple[Attention, str]] = {}  # name -> (attention, the tensor that shows it)
Bias = Tensor | BucketedBias | None


class Given(NamedTuple):
    """What attention is called with."""

    q: Tensor
    k: Tensor
    v: Tensor
    nb: Neighborhood
    bias: Bias
    dropout: float
    generator: torch.Generator

    def right(self, scale: float | None = None, **changes: Any) -> Tensor:
        """The definition, with some of the arguments changed."""
        q, k, v, nb, bias, dropout, generator = self._replace(**changes)
        options = {"bias": bias, "dropout": dropout, "generator": generator}
        return definition(q, k, v, nb, scale=scale, **options)

    def scores(self) -> Tensor:
        logits = self.q.size(2) ** -0.5 * reference.edge_dot(self.q, self.k, self.nb)
        return logits if self.bias is None else logits + reference.edge_bias(self.bias)

    def parts(
        self,
        softmax: Callable[[Tensor, Neighborhood], Tensor] = reference.edge_softmax,
        factor: Callable[[float, Tensor, Tensor], Tensor] = dropout_factor,
        logits: Tensor | None = None,
    ) -> Tensor:
        """The definition from parts, any of which can be a faulty one."""
        weights = softmax(self.scores() if logits is None else logits, self.nb)
        if self.dropout > 0:
            weights = weights * factor(self.dropout, draw_seed(self.generator), weights)
        return reference.aggregate(weights, self.v, self.nb)

    def only(self, edges: Tensor) -> Tensor:
        """The definition on some of the edges, and their bias."""
        bias = self.bias
        if isinstance(bias, BucketedBias):
            bias = BucketedBias(bias.bucket[edges], bias.table)
        elif bias is not None:
            bias = bias[edges]
        return self.right(nb=self.nb.keep(edges), bias=bias)


def fault(shown_by: str) -> Callable[[Callable[[Given], Tensor]], None]:
    def plant(run: Callable[[Given], Tensor]) -> None:
        FAULTS[run.__name__] = lambda *args, **options: run(Given(*args, **options)), shown_by

    return plant


def with_gradient(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The same values; the gradient that comes back is changed."""
    same = tensor.clone()
    if same.requires_grad:
        same.register_hook(change)
    return same


@fault("output")
def shuffled_sources(g: Given) -> Tensor:
    return g.right(nb=Neighborhood(g.nb.indptr, g.nb.indices.roll(1), g.nb.num_src))


@fault("output")
def dropped_edge(g: Given) -> Tensor:
    return g.only(torch.arange(g.nb.num_edges) != g.nb.num_edges // 2)


@fault("output")
def dropped_loops(g: Given) -> Tensor:
    return g.only(g.nb.indices != g.nb.targets())


@fault("output")
def collapsed_duplicates(g: Given) -> Tensor:
    code = (g.nb.targets() * g.nb.num_src + g.nb.indices).tolist()
    return g.only(torch.tensor([c not in code[:e] for e, c in enumerate(code)]).bool())


@fault("output")
def transposed_graph(g: Given) -> Tensor:
    return g.right(nb=g.nb.transpose() if g.nb.num_src == g.nb.num_dst else g.nb)


@fault("output")
def self_added(g: Given) -> Tensor:
    if g.nb.num_src != g.nb.num_dst or g.bias is not None:
        return g.right()
    edges = torch.cat([g.nb.edge_index(), torch.arange(g.nb.num_dst).expand(2, -1)], 1)
    return g.right(nb=Neighborhood.from_edge_index(edges, g.nb.num_dst))


@fault("output")
def last_row_skipped(g: Given) -> Tensor:
    done = torch.arange(g.nb.num_dst) < g.nb.num_dst - 1
    return g.right() * done[:, None, None]


@fault("output")
def dropped_scale(g: Given) -> Tensor:
    return g.right(scale=1.0)


@fault("output")
def dropped_bias(g: Given) -> Tensor:
    return g.right(bias=None)


@fault("output")
def bias_scaled_too(g: Given) -> Tensor:
    added = 0 if g.bias is None else reference.edge_bias(g.bias)
    return g.parts(logits=g.q.size(2) ** -0.5 * (reference.edge_dot(g.q, g.k, g.nb) + added))


@fault("output")
def next_bucket(g: Given) -> Tensor:
    if not isinstance(g.bias, BucketedBias):
        return g.right()
    return g.right(bias=BucketedBias((g.bias.bucket + 1) % BUCKETS, g.bias.table))


@fault("output")
def last_bucket_clipped(g: Given) -> Tensor:
    if not isinstance(g.bias, BucketedBias):
        return g.right()
    return g.right(bias=BucketedBias(g.bias.bucket.clamp(max=BUCKETS - 2), g.bias.table))


@fault("output")
def bias_of_the_first_head(g: Given) -> Tensor:
    is_tensor = isinstance(g.bias, Tensor)
    return g.right(bias=g.bias[:, :1].expand_as(g.bias) if is_tensor else g.bias)


@fault("output")
def maximum_not_subtracted(g: Given) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        weight = logits.exp()
        total = weight.new_zeros(nb.num_dst, g.q.size(1)).index_add(0, nb.targets(), weight)
        return weight / torch.where(total == 0, 1, total)[nb.targets()]

    return g.parts(softmax)


@fault("output")
def small_number_in_the_denominator(g: Given) -> Tensor:
    return g.parts(lambda logits, nb: reference.edge_softmax(logits, nb) / (1 + 1e-4))


@fault("output")
def normalized_over_targets(g: Given) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        turned = nb.transpose()
        weights = reference.edge_softmax(logits[turned.perm], turned)
        return torch.zeros_like(logits).index_copy(0, turned.perm, weights)

    return g.parts(softmax)


@fault("output")
def masked_after_the_softmax(g: Given) -> Tensor:
    if not isinstance(g.bias, Tensor):
        return g.parts()
    masked = g.bias == -torch.inf

    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        return reference.edge_softmax(logits, nb).masked_fill(masked, 0)

    return g._replace(bias=g.bias.masked_fill(masked, 0)).parts(softmax)


@fault("output")
def masked_row_not_a_number(g: Given) -> Tensor:
    out = g.right()
    if not isinstance(g.bias, Tensor):
        return out
    alive = reference.aggregate((g.bias != -torch.inf).to(g.v.dtype), torch.ones_like(g.v), g.nb)
    return torch.where((alive > 0) | (g.nb.degree() == 0)[:, None, None], out, torch.nan)


@fault("output")
def dropped_head(g: Given) -> Tensor:
    out = g.right()
    return torch.cat([out[:, :-1], torch.zeros_like(out[:, -1:])], 1)


@fault("output")
def heads_and_features_mixed(g: Given) -> Tensor:
    return g.right(v=g.v.transpose(1, 2).reshape(g.v.shape))


@fault("output")
def empty_row_not_written(g: Given) -> Tensor:
    out = g.right()
    return torch.where((g.nb.degree() > 0)[:, None, None], out, torch.empty_like(out))


@fault("output")
def summed_in_float32(g: Given) -> Tensor:
    return g.right(q=g.q.float(), k=g.k.float(), v=g.v.float()).to(g.q.dtype)


@fault("output")
def wrong_type(g: Given) -> Tensor:
    out = g.right()
    return out.double() if out.dtype == torch.float32 else out


@fault("query")
def gradient_of_query_unscaled(g: Given) -> Tensor:
    return g.right(q=with_gradient(g.q, lambda grad: grad * g.q.size(2) ** 0.5))


@fault("key")
def gradient_of_key_permuted(g: Given) -> Tensor:
    return g.right(k=with_gradient(g.k, lambda grad: grad.roll(1, 0)))


@fault("query")
def gradient_of_softmax_without_the_mean(g: Given) -> Tensor:
    def softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
        weights = reference.edge_softmax(logits, nb).detach()
        finite = logits.masked_fill(logits == -torch.inf, 0)
        return weights * (1 + finite - finite.detach())

    return g.parts(softmax)


@fault("value")
def gradient_of_value_missing(g: Given) -> Tensor:
    return g.right(v=with_gradient(g.v, torch.zeros_like))


@fault("bias")
def gradient_of_bias_missing(g: Given) -> Tensor:
    return g.right(bias=g.bias.detach() if isinstance(g.bias, Tensor) else g.bias)


@fault(r"bias\.table")
def gradient_of_table_from_one_edge(g: Given) -> Tensor:
    if not isinstance(g.bias, BucketedBias) or not g.nb.num_edges:
        return g.right()
    first, others = g.bias.bucket.long().tensor_split([1])
    return g.right(bias=torch.cat([g.bias.table[first], g.bias.table.detach()[others]]))


@fault("output")
def dropout_not_rescaled(g: Given) -> Tensor:
    return g.parts(factor=lambda p, seed, like: dropout_factor(p, seed, like) * (1 - p))


@fault("output")
def dropout_by_another_seed(g: Given) -> Tensor:
    return g.parts(factor=lambda p, seed, like: dropout_factor(p, seed + 1, like))


@fault("output")
def dropout_the_same_for_all_heads(g: Given) -> Tensor:
    return g.parts(factor=lambda p, seed, like: dropout_factor(p, seed, like)[:, :1])


@fault("query")
def dropout_not_in_the_backward_pass(g: Given) -> Tensor:
    whole = g.right(dropout=0.0)
    return g.right().detach() + whole - whole.detach()


def from_parts(*args: Any, **options: Any) -> Tensor:
    return Given(*args, **options).parts()


def suite(attention: Attention) -> Iterator[None]:
    """A small part of what the backends go through."""
    for graph, make in GRAPHS.items():
        wide = torch.float32 if graph == NARROW else torch.float64  # see `is_slow`
        for bias in BIASES:
            for dtype, dropout in ((torch.float32, 0.0), (wide, 0.4)):
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
@pytest.mark.parametrize("attention", [definition, from_parts, ops.attention])
def test_what_is_right_passes(attention: Attention) -> None:
    assert len(list(suite(attention))) == len(GRAPHS) * len(BIASES) * 2


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 30
