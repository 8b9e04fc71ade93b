"""Operations once more in float64, row by row, from their equations; nothing of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Named = dict[str, Array]


@dataclass(frozen=True)
class Edges:
    """Edges in the order of the library's rows: of edge e the source and the target."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    num_src: int
    num_dst: int

    def rows(self) -> list[NDArray[np.int64]]:
        """The edges of each target."""
        order = np.argsort(self.dst, kind="stable")
        return np.split(order, np.searchsorted(self.dst[order], np.arange(1, self.num_dst)))


def weights_of(logits: Array) -> Array:
    """Softmax of one row; zeros where every logit is -inf."""
    if not len(logits) or logits.max() == -np.inf:
        return np.zeros_like(logits)
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def attention(
    e: Edges, query: Array, key: Array, value: Array, bias: Array | None, grad: Array,
    most: int | None = None,
) -> Named:  # fmt: skip
    """Softmax attention over a row, or over its `most` largest logits: output and gradients."""
    scale = query.shape[2] ** -0.5
    out = {"output": np.zeros_like(grad), "query": np.zeros_like(query)}
    out |= {"key": np.zeros_like(key), "value": np.zeros_like(value)}
    of_bias = np.zeros((len(e.src), query.shape[1]))
    for i, row in enumerate(e.rows()) if e.num_dst else ():
        j = e.src[row]
        for h in range(query.shape[1]):
            logits = scale * key[j, h] @ query[i, h]
            if bias is not None:
                logits = logits + bias[row, h]
            if most is not None and len(logits) > most:
                chosen = np.argsort(-logits, kind="stable")[:most]
                others = np.setdiff1d(np.arange(len(logits)), chosen)
                logits[others] = -np.inf
            w = weights_of(logits)
            out["output"][i, h] = w @ value[j, h]
            of_w = value[j, h] @ grad[i, h]
            of_logits = w * (of_w - w @ of_w)
            out["query"][i, h] = scale * of_logits @ key[j, h]
            np.add.at(out["key"][:, h], j, scale * of_logits[:, None] * query[i, h])
            np.add.at(out["value"][:, h], j, w[:, None] * grad[i, h])
            of_bias[row, h] = of_logits
    return out if bias is None else out | {"bias": of_bias}


def additive_attention(
    e: Edges, value: Array, sent: Array, received: Array, grad: Array, slope: float
) -> Named:
    """GAT: softmax of LeakyReLU(sent_j + received_i), and its gradients."""
    out = {"output": np.zeros_like(grad), "value": np.zeros_like(value)}
    out |= {"sent": np.zeros_like(sent), "received": np.zeros_like(received)}
    for i, row in enumerate(e.rows()) if e.num_dst else ():
        j = e.src[row]
        for h in range(value.shape[1]):
            before = sent[j, h] + received[i, h]
            w = weights_of(np.where(before > 0, before, slope * before))
            out["output"][i, h] = w @ value[j, h]
            of_w = value[j, h] @ grad[i, h]
            of_before = w * (of_w - w @ of_w) * np.where(before > 0, 1.0, slope)
            np.add.at(out["value"][:, h], j, w[:, None] * grad[i, h])
            np.add.at(out["sent"][:, h], j, of_before)
            out["received"][i, h] = of_before.sum()
    return out


def aggregate(e: Edges, weights: Array, value: Array, grad: Array, reduce: str) -> Named:
    """Sum, mean, max or min of weight times value over a row; equal ones share gradients."""
    out = {"output": np.zeros_like(grad), "weights": np.zeros_like(weights)}
    out["value"] = np.zeros_like(value)
    for i, row in enumerate(e.rows()) if e.num_dst else ():
        if not len(row):
            continue
        j = e.src[row]
        terms = weights[row][:, :, None] * value[j]
        if reduce in ("sum", "mean"):
            share = np.full_like(terms, 1.0 if reduce == "sum" else 1 / len(row))
            out["output"][i] = (share * terms).sum(0)
        else:
            best = terms.max(0) if reduce == "max" else terms.min(0)
            hit = terms == best
            share = hit / hit.sum(0)
            out["output"][i] = best
        of_terms = share * grad[i]
        np.add.at(out["value"], j, weights[row][:, :, None] * of_terms)
        out["weights"][row] = (of_terms * value[j]).sum(2)
    return out


def relu_sum(e: Edges, value: Array, features: Array, grad: Array) -> Named:
    """Sum of ReLU(value_j + features of the edge) over a row, and its gradients."""
    out = {"output": np.zeros_like(grad), "value": np.zeros_like(value)}
    out["features"] = np.zeros_like(features)
    for i, row in enumerate(e.rows()) if e.num_dst else ():
        terms = value[e.src[row]] + features[row]
        out["output"][i] = np.maximum(terms, 0).sum(0)
        out["features"][row] = (terms > 0) * grad[i]
        np.add.at(out["value"], e.src[row], out["features"][row])
    return out


def gated_sum(e: Edges, value: Array, grad: Array, **terms: Array) -> Named:
    """Sum of values by the sigmoid of terms of source, target and edge, and its gradients."""
    out = {"output": np.zeros_like(grad), "value": np.zeros_like(value)}
    out |= {name: np.zeros_like(term) for name, term in terms.items()}
    for i, row in enumerate(e.rows()) if e.num_dst else ():
        at = {"source": e.src[row], "target": np.full_like(row, i), "edge": row}
        logits = np.zeros((len(row), value.shape[2]))
        for name, term in terms.items():
            logits += term[at[name]]
        gate = (1 / (1 + np.exp(-logits)))[:, None]
        out["output"][i] = (gate * value[at["source"]]).sum(0)
        np.add.at(out["value"], at["source"], gate * grad[i])
        of_logits = (gate * (1 - gate) * value[at["source"]] * grad[i]).sum(1)
        for name in terms:
            np.add.at(out[name], at[name], of_logits)
    return out


def size_of(true: Any) -> float:
    """What an error is measured against: the largest finite entry, or 1e-2 of a tensor of zeros."""
    finite = np.abs(true[np.isfinite(true)]) if true.size else np.zeros(1)
    return float(max(finite.max(initial=0.0), 1e-2))
