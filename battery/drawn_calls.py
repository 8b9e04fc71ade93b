"""What a layer is called with, in every form that PyG takes and in some that it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from battery.drawn_layers import (
    BY_KIND,
    EDGE,
    KINDS,
    RELATIONS,
    WEIGHTED,
    WIDTH,
    WITH_FEATURES,
    WITH_TYPES,
    Rng,
    one,
)  # fmt: skip
from graphtheory.nn.conv.on_core import OnCore


def mostly_ours(number: int) -> AbstractContextManager[object]:
    """Three of four calls on the core, where the first on few edges is PyG's way otherwise."""
    if number % 4 == 0:
        return nullcontext()
    return mock.patch.object(OnCore, "_is_first", lambda *_, **__: False)


NODES = 7
Size = tuple[int, int]
STATIC = ("GCNConv", "SAGEConv", "GINConv", "GINEConv", "GraphConv", "ChebConv", "SGConv", "APPNP")
PAIRS = ("TransformerConv", "GATConv", "GATv2Conv", "SAGEConv", "GINConv", "GINEConv", "GraphConv",
         "RGCNConv", "FastRGCNConv")  # fmt: skip
ONE_SIDED = ("GATConv", "SAGEConv", "GINConv", "GINEConv", "GraphConv")  # and with a `size`


class Given(NamedTuple):
    """The drawn arguments of a layer's call.

    Attributes:
        args: By place, features and graph first.
        named: By name.
        words: Their forms.
        proper: Whether all have the shapes, types and ids that PyG documents.
    """

    args: tuple[Any, ...]
    named: dict[str, Any]
    words: str
    proper: bool = True


def normal(rng: Rng, *shape: int) -> Tensor:
    """Draw normal numbers of float32 in this shape."""
    return torch.from_numpy(rng.standard_normal(shape)).float()


def turned(x: Tensor) -> Tensor:
    """The same with the strides of a transposed tensor."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def _every_second(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, 0)[::2]


# --- graphs --------------------------------------------------------------------------------------


def _ends(rng: Rng, size: Size) -> Tensor:
    count = int(rng.integers(0, 25)) if min(size) else 0
    src, dst = (rng.integers(0, max(n, 1), count) for n in size)
    if rng.random() < 0.6:  # no two edges alike, which matrices add up
        src, dst = np.unique(np.stack([src, dst]), axis=1)
    order = rng.permutation(len(src))
    if rng.random() < 0.3:
        order = np.lexsort((src, dst))
    return torch.from_numpy(np.stack([src[order], dst[order]]).astype(np.int64))


def weights_of(rng: Rng, count: int) -> Tensor:
    """Numbers between 0.1 and 1.1."""
    return torch.from_numpy(rng.random(count)).float() + 0.1


def _value(rng: Rng, edges: Tensor) -> Tensor | None:
    return weights_of(rng, edges.size(1)) if rng.random() < 0.5 else None


def _sparse_tensor(edges: Tensor, rng: Rng, size: Size, value: Tensor | None) -> SparseTensor:
    return SparseTensor(row=edges[1], col=edges[0], value=value, sparse_sizes=size[::-1])


GRAPHS: dict[str, tuple[float, Callable[..., Any]]] = {
    "list": (8, lambda e, rng, size, value: e),
    "32-bit list": (2, lambda e, rng, size, value: e.int()),
    "turned list": (2, lambda e, rng, size, value: turned(e)),
    "EdgeIndex": (
        2, lambda e, rng, size, value: EdgeIndex(
            e, sparse_size=one(rng, size, None) if size[0] == size[1] else size
        )
    ),
    "coo": (2, lambda e, rng, size, value: to_torch_coo_tensor(e.flip(0), value, size[::-1])),
    "csr": (2, lambda e, rng, size, value: to_torch_csr_tensor(e.flip(0), value, size[::-1])),
    "csr turned": (
        1,
        lambda e, rng, size, value: to_torch_csc_tensor(e, value, size).transpose(0, 1)
        if value is None or value.dim() == 1 else to_torch_csr_tensor(e.flip(0), value, size[::-1]),
    ),
    "csc": (0.5, lambda e, rng, size, value: to_torch_csc_tensor(e.flip(0), value, size[::-1])),
    "SparseTensor": (4 * WITH_TORCH_SPARSE, _sparse_tensor),
    "out of range": (
        0.3, lambda e, rng, size, value: torch.cat([e, torch.full((2, 1), one(rng, -1, 99))], 1)
    ),
}  # fmt: skip
LISTS = ("list", "32-bit list", "turned list", "EdgeIndex")
MATRICES = ("coo", "csr", "csr turned", "csc", "SparseTensor")


def draw_graph(
    rng: Rng, size: Size, forms: tuple[str, ...] = tuple(GRAPHS), values: Any = _value
) -> tuple[Any, str, int]:
    """A graph, its form, and its number of edges."""
    chances = np.array([GRAPHS[form][0] for form in forms])
    form = str(rng.choice(forms, p=chances / chances.sum()))
    edges = _ends(rng, size)
    if form in MATRICES:
        edges = edges.unique(dim=1)
    return GRAPHS[form][1](edges, rng, size, values(rng, edges)), form, edges.size(1)


# --- features of nodes ---------------------------------------------------------------------------


def _features(name: str, rng: Rng, nodes: int) -> tuple[Any, str]:
    x = normal(rng, nodes, WIDTH)
    forms: dict[str, Any] = {
        "plain": lambda: x, "turned": lambda: turned(x), "every second": lambda: _every_second(x),
    }  # fmt: skip
    if name in STATIC:
        forms["static"] = lambda: normal(rng, int(rng.integers(1, 4)), nodes, WIDTH)
    if name in ("GCNConv", "GATConv", "TransformerConv"):
        forms["sparse"] = lambda: (x * (x > 0)).to_sparse_csr()
    form = one(rng, "plain", "plain", *forms)
    return forms[form](), form


def _pair(name: str, rng: Rng, size: Size) -> tuple[Any, str]:
    first, second = normal(rng, size[0], WIDTH), normal(rng, size[1], WIDTH)
    forms: dict[str, Any] = {"pair": (first, second), "list of two": [first, second]}
    if name in ONE_SIDED:
        forms["pair with None"] = first, None
    if name in STATIC:
        forms["static pair"] = normal(rng, 2, size[0], WIDTH), normal(rng, 2, size[1], WIDTH)
    if size[0] == size[1]:
        forms["twice the same"] = first, first
    form = one(rng, *forms)
    return forms[form], form


def _ids(rng: Rng) -> tuple[Any, str, Size]:
    ids = torch.from_numpy(rng.permutation(WIDTH))
    form = one(rng, "None", "ids", "pair of ids", "None and ids")
    x = {"None": None, "ids": ids, "pair of ids": (ids, ids[:4]), "None and ids": (None, ids[:4])}
    return x[form], form, (WIDTH, 4 if isinstance(x[form], tuple) else WIDTH)


# --- what an edge carries ------------------------------------------------------------------------


def _weights(rng: Rng, count: int) -> dict[str, tuple[float, Tensor]]:
    value = weights_of(rng, count)
    return {
        "weights": (3, value), "[E, 1]": (1, value[:, None]), "[1, E]": (0.5, value[None]),
        "integers": (1, (value * 5).long()), "bool": (1, value > 0.5),
        "float64": (1, value.double()), "every second": (1, _every_second(value)),
        "zeros": (0.5, value * 0), "too few": (0.3, value[:-1]),
        "[E, 2]": (0.3, torch.stack([value, value], 1)),
    }  # fmt: skip


def _attributes(rng: Rng, count: int, width: int) -> dict[str, tuple[float, Tensor]]:
    value = normal(rng, count, width)
    return {
        "features": (4, value), "turned": (1, turned(value)), "float64": (0.5, value.double()),
        "every second": (1, _every_second(value)), "expanded": (1, value[:1].expand_as(value)),
        "integers": (0.5, value.long()), "bool": (0.3, value > 0), "too few": (0.3, value[:-1]),
        "one too wide": (0.3, normal(rng, count, width + 1)),
    } | ({"[E]": (2, value[:, 0])} if width == 1 else {})  # fmt: skip


def _types(rng: Rng, count: int) -> dict[str, tuple[float, Tensor]]:
    value = torch.from_numpy(rng.integers(0, RELATIONS, count))
    return {
        "types": (6, value), "int32": (1, value.int()), "every second": (1, _every_second(value)),
        "floats": (0.3, value.float()), "too few": (0.3, value[:-1]), "beyond": (0.3, value + 1),
        "[E, 1]": (0.3, value[:, None]),
    }  # fmt: skip


IMPROPER = (
    "out of range", "too few", "[E, 2]", "one too wide", "beyond", "edge_attr integers",
    "edge_attr bool", "edge_type [E, 1]",
)  # fmt: skip


def _of_edges(name: str, layer: Any, rng: Rng, count: int) -> tuple[dict[str, Any], str]:
    if name in WEIGHTED:
        key, forms, absent = "edge_weight", _weights(rng, count), 0.4
    elif name in WITH_FEATURES:
        width = layer.edge_dim if name != "GINEConv" else EDGE if layer.lin is not None else WIDTH
        key, forms = "edge_attr", _attributes(rng, count, width or EDGE)
        absent = 0.1 if width else 1.0
    elif name in WITH_TYPES:
        key, forms, absent = "edge_type", _types(rng, count), 0.0
    else:
        return {}, ""
    if rng.random() < absent:
        return {}, ""
    if getattr(layer, "aggr", "") == "max":  # torch counts one more among equal ones at 0
        forms.pop("zeros", None)
    chances = np.array([chance for chance, _ in forms.values()])
    form = str(rng.choice(list(forms), p=chances / chances.sum())) if count else next(iter(forms))
    return {key: forms[form][1]}, f"{key} {form}"


# --- calls ---------------------------------------------------------------------------------------


def draw_call(name: str, layer: Any, rng: Rng) -> Given:
    """Draw arguments of a layer's call in drawn forms."""
    if name in BY_KIND:
        return _by_kind(name, rng)
    size = (nodes := int(rng.choice([0, 1, NODES, NODES, NODES, NODES])), nodes)
    x, form = _features(name, rng, nodes)
    if name in WITH_TYPES and layer.num_blocks is None and rng.random() < 0.3:
        x, form, size = _ids(rng)
    elif name in PAIRS and rng.random() < 0.35:
        size = nodes, one(rng, nodes, int(rng.integers(1, 6)))
        x, form = _pair(name, rng, size)
    graph, of_graph, count = draw_graph(rng, size, *_graphs(name, layer, form, rng))
    named, words = _of_edges(name, layer, rng, count)
    if isinstance(graph, SparseTensor) and name in WITH_TYPES:
        named, words = {}, "its values are types"
    asked = (*size,)
    if name in ONE_SIDED and ("None" in form or rng.random() < 0.3):
        wrong = rng.random() < 0.05 and of_graph == "list"
        named["size"] = one(rng, tuple, list)((size[0] + wrong, size[1]))
        words += f", size {'wrong' * wrong}"
    if name == "GPSConv" and nodes and rng.random() < 0.5:
        named["batch"] = torch.from_numpy(np.sort(rng.integers(0, 3, nodes)))
        words += ", batch"
    if name in ("GATConv", "GATv2Conv", "TransformerConv") and rng.random() < 0.2:
        named["return_attention_weights"] = True
        words += ", weights wanted"
    words = f"x {form} of {asked}, graph {of_graph}, {words}"
    ignored = name in WEIGHTED and of_graph in MATRICES  # what PyG does not look at
    proper = ignored or not any(one in words for one in (*IMPROPER, "wrong"))
    return Given((x, graph), named, words, proper)


def _graphs(name: str, layer: Any, form: str, rng: Rng) -> tuple[tuple[str, ...], Any]:
    """The forms of a graph that a layer takes, and what draws the values of a matrix."""
    forms: tuple[str, ...] = tuple(GRAPHS)
    values = _value
    if getattr(layer, "flow", "source_to_target") != "source_to_target" or name == "ChebConv":
        forms = (*LISTS, "out of range")
    elif name in WITH_TYPES:
        forms = (*LISTS, "SparseTensor", "out of range")

        def values(rng: Rng, edges: Tensor) -> Tensor:
            return torch.from_numpy(rng.integers(0, RELATIONS, edges.size(1)))

    elif name in WITH_FEATURES:

        def values(rng: Rng, edges: Tensor) -> Tensor | None:
            width = layer.__dict__.get("edge_dim") or EDGE
            return normal(rng, edges.size(1), width) if rng.random() < 0.2 else None

    return forms, values


def _by_kind(name: str, rng: Rng) -> Given:
    nodes = {"a": int(rng.choice([1, 5, 5, 5])), "b": int(rng.choice([0, 4, 4, 4]))}
    x = {t: _features(name, rng, n) for t, n in nodes.items()}
    kinds = [kind for kind in KINDS if rng.random() < 0.85] or KINDS[:1]
    forms = {kind: tuple(GRAPHS) for kind in kinds}
    if name == "HGTConv":  # PyG reorders a SparseTensor, but not the priors of its edges
        forms[kinds[-1]] = LISTS[:3]
    drawn = {k: draw_graph(rng, (nodes[k[0]], nodes[k[2]]), forms[k]) for k in kinds}
    words = (
        f"x {[form for _, form in x.values()]}, graphs {[form for _, form, _ in drawn.values()]}"
    )
    args = {t: one for t, (one, _) in x.items()}, {k: graph for k, (graph, _, _) in drawn.items()}
    return Given(args, {}, words, "out of range" not in words)


def plain_call(name: str, layer: Any, rng: Rng) -> Given:
    """Arguments that any layer takes: an edge list or, at times, a matrix."""
    if name in BY_KIND:
        x = {t: normal(rng, n, WIDTH) for t, n in (("a", 5), ("b", 4))}
        ends = {k: _ends(rng, (len(x[k[0]]), len(x[k[2]]))) for k in KINDS}
        return Given((x, ends), {}, "plain")
    forms, _ = _graphs(name, layer, "", rng)
    form = one(rng, "list", "list", "SparseTensor")
    form = form if form in forms and name not in WITH_TYPES and WITH_TORCH_SPARSE else "list"
    graph, _, count = draw_graph(rng, (NODES, NODES), (form,), lambda rng, edges: None)
    named: dict[str, Any] = {}
    if name in WITH_TYPES:
        named["edge_type"] = torch.from_numpy(rng.integers(0, RELATIONS, count))
    elif name in WITH_FEATURES:
        width = layer.edge_dim if name != "GINEConv" else EDGE if layer.lin is not None else WIDTH
        named |= {"edge_attr": normal(rng, count, width)} if width else {}
    elif name in WEIGHTED and form == "list" and rng.random() < 0.5:
        named["edge_weight"] = weights_of(rng, count)
    return Given((normal(rng, NODES, WIDTH), graph), named, form)


# --- copies --------------------------------------------------------------------------------------


def copied(value: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A copy in memory of its own with the same layout; floats ask for a gradient."""
    if isinstance(value, dict):
        return {name: copied(one, dtype) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        made = [copied(one, dtype) for one in value]
        if len(value) == 2 and value[0] is value[1]:
            made[1] = made[0]
        return type(value)(made)
    if isinstance(value, SparseTensor):
        row, col, val = value.coo()
        return SparseTensor(
            row=row, col=col, value=copied(val, dtype), sparse_sizes=value.sparse_sizes()
        )
    if not isinstance(value, Tensor):
        return value
    if value.is_floating_point() and value.dtype is torch.float32:
        value = value.to(dtype)
    if type(value) is not Tensor or value.layout is not torch.strided:
        return value.clone()
    if value.numel() and all(value.stride()):
        twin = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
        return twin.copy_(value).requires_grad_(value.is_floating_point())
    first = value[:1].clone().requires_grad_(value.is_floating_point())
    return first.expand_as(value) if value.numel() else first
