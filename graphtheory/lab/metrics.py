"""What a network attends to, computes and has learned."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import graphtheory.ops  # noqa: F401  # registers what is looked up below
from graphtheory.graph import Neighborhood
from graphtheory.modes import evaluating

__all__ = [
    "Macs", "count_macs", "linear_probe", "mass_by_distance", "mass_on", "nearest_accuracy",
]  # fmt: skip


def mass_by_distance(
    weights: list[Tensor], neighborhood: Neighborhood
) -> list[dict[str, float | int]]:
    r"""Share of attention that goes to each distance, beside the share of uniform attention.

    .. math:: m_z = \frac1N \sum_n \sum_{s \in T^n : \mathrm{hops}(s, n) = z} w_{sn}

    Nodes with an empty row are left out; heads are averaged.

    Args:
        weights: [num_edges, heads] of each layer, in the edge order of the neighborhood.
        neighborhood: Who aggregates from whom, with distances.

    Returns:
        Rows with keys layer (from 1), distance (hops), mass, uniform.

    Raises:
        ValueError: The neighborhood has no distances.
    """
    if neighborhood.distance is None:
        raise ValueError("neighborhood: has no distance, expected hops of each edge")
    rows, hops = neighborhood.targets(), neighborhood.distance.long()
    degree = neighborhood.degree()
    busy = max(int((degree > 0).sum()), 1)
    none = torch.zeros(256, dtype=torch.float64, device=hops.device)
    uniform = none.index_add(0, hops, 1 / degree[rows].double()) / busy
    out: list[dict[str, float | int]] = []
    for layer, weight in enumerate(weights, 1):
        mass = none.index_add(0, hops, weight.double().mean(1)) / busy
        out += [
            {"layer": layer, "distance": z, "mass": float(mass[z]), "uniform": float(uniform[z])}
            for z in torch.unique(hops).tolist()
        ]
    return out


def mass_on(
    weights: Tensor, neighborhood: Neighborhood, relevant: Tensor, nodes: Tensor | None = None
) -> float:
    r"""Attention concentration, left side of (3.11): mean mass put on relevant edges.

    Args:
        weights: [num_edges, heads].
        neighborhood: Who aggregates from whom.
        relevant: Bool [num_edges], e.g. sources that carry the target's class-relevant pattern.
        nodes: Bool [num_dst], the targets to average over; default all. Those with an empty row
            are left out.

    Raises:
        ValueError: No target is left to average over, or a shape that does not fit.
    """
    edges = neighborhood.num_edges
    if weights.dim() != 2 or weights.size(0) != edges:
        raise ValueError(f"weights: shape {tuple(weights.shape)}, expected [{edges}, heads]")
    if relevant.shape != (edges,):
        raise ValueError(f"relevant: shape {tuple(relevant.shape)}, expected [{edges}]")
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    kept = torch.where(relevant, weights.mean(1), 0)
    per_node = weights.new_zeros(neighborhood.num_dst).index_add(0, neighborhood.targets(), kept)
    busy = neighborhood.degree() > 0
    chosen = busy if nodes is None else busy & nodes
    if not bool(chosen.any()):
        raise ValueError("nodes: none of them has a row, expected a target to average over")
    return float(per_node[chosen].mean())


def _on_edges(products: int, nodes: int, graph: int, *shapes: Any, **_: Any) -> int:
    """Count `products` dot products of head_dim on each edge and head, by the operands' shapes."""
    return 2 * products * shapes[graph][1][0] * math.prod(shapes[nodes][-2:])


# What torch's counter has no formula for: its kernel on a CPU, and the ops of the core.
_OWN = torch.ops.graphtheory
_FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)
    ),
    # The positions of the operand [..., heads, head_dim] and of the neighborhood's tensors.
    _OWN.attention: partial(_on_edges, 2, 0, 7),
    _OWN.edge_dot: partial(_on_edges, 1, 0, 2),
    _OWN.aggregate: partial(_on_edges, 1, 1, 2),
    _OWN.additive_attention: partial(_on_edges, 1, 0, 5),
    _OWN.additive_score: partial(_on_edges, 1, 2, 6),
    _OWN.topk_blocks: lambda *shapes, **_: 4 * math.prod(shapes[7]) * math.prod(shapes[0][1:]),
}


class Macs(NamedTuple):
    """Multiply-accumulate operations of a forward pass."""

    total: int  #: Of all modules.
    by_module: dict[str, int]  #: Of each module that has any, by its name in the model.


@torch.no_grad()
def count_macs(model: nn.Module, *inputs: Any) -> Macs:
    """Run a model in evaluation mode and count its multiply-accumulate operations (MACs).

    One MAC is two FLOPs of torch's counter, and what papers on vision transformers call a FLOP.
    Products of matrices, convolutions and attention count, two products of head_dim on each edge
    and head; norms, activations, softmax, pooling and biases do not, nor does the backend
    "reference", which works entry by entry. Attention to the k largest counts every logit and, as
    published, every value. Ragged sets count as they run, with their padding.

    Args:
        model: Any module; its mode is the same afterwards.
        inputs: What the model takes. One image suffices; on the device "meta" nothing is computed,
            which models with a bias by bucket do not support.

    Example:
        >>> count_macs(nn.Linear(3, 4), torch.zeros(2, 3)).total
        24
    """
    counting = FlopCounterMode(display=False, custom_mapping=_FORMULAS)
    with evaluating(model), counting as counter:
        model(*inputs)
    counted = {name: sum(of.values()) // 2 for name, of in counter.get_flop_counts().items()}
    root = type(model).__name__ + "."
    parts = {n.removeprefix(root): macs for n, macs in counted.items() if n.startswith(root)}
    return Macs(counted.get("Global", 0), parts)


def linear_probe(
    train: Tensor, train_y: Tensor, test: Tensor, test_y: Tensor, *, strength: float = 1.0
) -> float:
    """Accuracy of one linear layer with softmax on frozen features, 0..1.

    scikit-learn's logistic regression, on features that were scaled to mean 0 and deviation 1 over
    the training samples.

    Args:
        train: Features that may be learned from, [n, F].
        train_y: Their classes, int64 [n].
        test: Features that are scored, [m, F].
        test_y: Their classes, int64 [m].
        strength: Inverse of the L2 penalty, C.

    Raises:
        TypeError: Classes that are not integers.
        ValueError: Fewer than two classes to learn from, a shape that does not fit, features that
            are not finite, or a strength that is not above 0.

    Source: Li and Pimentel-Alarcon (2024), "Supervised Test Accuracy".
    """
    _check_samples("train", train, "train_y", train_y, 2)
    _check_samples("test", test, "test_y", test_y, 1)
    if test.size(1) != train.size(1):
        raise ValueError(f"test: shape {tuple(test.shape)}, expected [m, {train.size(1)}] as train")
    if (classes := len(train_y.unique())) < 2:
        raise ValueError(f"train_y: got {classes} class, expected 2 or more")
    if not 0 < strength < math.inf:
        raise ValueError(f"strength: got {strength}, expected a number above 0")
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000))
    model.fit(train.detach().cpu().double().numpy(), train_y.cpu().numpy())
    return float(model.score(test.detach().cpu().double().numpy(), test_y.cpu().numpy()))


def _check_samples(name: str, features: Tensor, classes: str, labels: Tensor, least: int) -> None:
    """Raise unless these are finite features of `least` samples or more, and integer classes."""
    shape, got = tuple(features.shape), tuple(labels.shape)
    if len(shape) != 2 or shape[0] < least:
        raise ValueError(f"{name}: shape {shape}, expected [n, F] with n at least {least}")
    if got != shape[:1]:
        raise ValueError(f"{classes}: shape {got}, expected a class per sample [{shape[0]}]")
    if labels.is_floating_point():
        raise TypeError(f"{classes}: dtype {labels.dtype}, expected integers")
    if not features.isfinite().all():
        raise ValueError(f"{name}: got NaN or infinity, expected finite features")


@torch.no_grad()
def nearest_accuracy(features: Tensor, labels: Tensor) -> float:
    """Share of samples whose nearest other sample, by Euclidean distance, has their class, 0..1.

    Args:
        features: Of the test samples, which are each other's only neighbors; [n, F], n at least 2.
        labels: Their classes, int64 [n].

    Raises:
        TypeError: Classes that are not integers.
        ValueError: Fewer than two samples, other numbers of labels, features that are not finite.

    Source: Li and Pimentel-Alarcon (2024), "Unsupervised Test Accuracy".

    Example:
        >>> nearest_accuracy(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 2]))
        0.5
    """
    _check_samples("features", features, "labels", labels, 2)
    features = features.double()
    features = features - features.mean(0)  # rounding of a common offset would hide near ones
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(features.cpu().numpy())
    near = torch.from_numpy(nearest.kneighbors(return_distance=False)[:, 0])
    return float((labels.cpu()[near] == labels.cpu()).float().mean())
