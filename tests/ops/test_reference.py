"""The oracle itself, against loops over Python floats that share nothing with it."""

import math

import pytest
import torch

from graphtheory import Neighborhood, ops
from tests.conformance.check import BIASES, GRAPHS, definition, draw_inputs

Matrix = list[list[float]]


def one_head(query: Matrix, key: Matrix, value: Matrix, bias: list[float], rows: list[list[int]],
             sources: list[int]) -> Matrix:  # fmt: skip
    """Softmax attention by the formula; `rows` holds the edges of each target."""
    out = []
    for i, edges in enumerate(rows):
        total = [0.0] * len(query[i])
        powers = []
        for e in edges:
            dot = sum(a * b for a, b in zip(query[i], key[sources[e]], strict=True))
            powers.append(math.exp(dot / math.sqrt(len(query[i])) + bias[e]))
        for e, power in zip(edges, powers, strict=True):
            share = power / sum(powers) if sum(powers) else 0.0
            total = [t + share * x for t, x in zip(total, value[sources[e]], strict=True)]
        out.append(total)
    return out


@pytest.mark.parametrize("bias", [b for b in BIASES if b != "large"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_attention_is_its_formula(graph: str, bias: str) -> None:
    nb = GRAPHS[graph](7)
    inputs = draw_inputs(nb, 3, 5, bias, torch.float64)
    found = definition(inputs.query, inputs.key, inputs.value, nb, bias=inputs.bias)
    rows = [list(range(nb.indptr[i], nb.indptr[i + 1])) for i in range(nb.num_dst)]
    for h in range(3):
        if isinstance(inputs.bias, ops.BucketedBias):
            added = [inputs.bias.table[b, h].item() for b in inputs.bias.bucket.tolist()]
        else:
            added = [0.0] * nb.num_edges if bias == "none" else inputs.bias[:, h].tolist()
        parts = (t[:, h].tolist() for t in (inputs.query, inputs.key, inputs.value))
        expected = one_head(*parts, added, rows, nb.indices.tolist())
        expected = torch.tensor(expected, dtype=torch.float64).view(nb.num_dst, 5)
        torch.testing.assert_close(found[:, h], expected, rtol=1e-12, atol=1e-14)


def test_it_equals_dense_attention_of_torch_and_dropout_multiplies_its_weights() -> None:
    nb = GRAPHS["random"](63)
    nb = nb.keep(nb.to_dense()[nb.targets(), nb.indices] == 1)  # dense attention has no duplicates
    inputs = draw_inputs(nb, 4, 8, dtype=torch.float64)
    found = definition(inputs.query, inputs.key, inputs.value, nb)
    mask = nb.to_dense().bool()
    heads_first = (t.transpose(0, 1) for t in (inputs.query, inputs.key, inputs.value))
    dense = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask)
    torch.testing.assert_close(found, dense.transpose(0, 1), rtol=1e-12, atol=1e-14)
    nb = Neighborhood.from_edge_index(torch.zeros(2, 1000, dtype=torch.int64))
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    generator = torch.Generator().manual_seed(0)
    out = definition(zero, zero, one, nb, dropout=0.25, generator=generator)
    assert out.item() != 1 and out.item() == pytest.approx(1, abs=4 * math.sqrt(0.25 / 0.75 / 1000))
