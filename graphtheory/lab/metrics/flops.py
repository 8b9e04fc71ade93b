"""Multiplications and additions of a model, counted while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import graphtheory.ops  # noqa: F401  # registers what is looked up below
from graphtheory.modes import evaluating

_Shape = Sequence[int]


def _on_edges(products: int, nodes: int, structure: int) -> Any:
    """A formula: `products` dot products of head_dim on each edge and head.

    The arguments of the op at `nodes` and `structure` are shapes: of nodes [N, H, D], and of the
    tensors of a neighborhood, the second of which has one entry an edge.
    """

    def flops(*shapes: Any, out_val: Any = None, **_: Any) -> int:
        _, heads, dim = shapes[nodes]
        return 2 * products * shapes[structure][1][0] * heads * dim

    return flops


def _score(source: _Shape, target: _Shape, att: _Shape, *rest: Any, **_: Any) -> int:
    return 2 * rest[3][1][0] * att[0] * att[1]


def _topk_blocks(query: _Shape, *rest: Any, **_: Any) -> int:
    count, targets, sources = rest[6]
    return 4 * count * targets * sources * query[1] * query[2]


def _dense(query: _Shape, key: _Shape, value: _Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _formulas() -> dict[Any, Any]:
    """What torch's counter has no formula for: its kernel on a CPU, and the ops of the core."""
    own = torch.ops.graphtheory
    return {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _dense,
        own.attention: _on_edges(2, nodes=0, structure=7),
        own.edge_dot: _on_edges(1, nodes=0, structure=2),
        own.aggregate: _on_edges(1, nodes=1, structure=2),
        own.additive_attention: _on_edges(1, nodes=0, structure=5),
        own.additive_score: _score,
        own.topk_blocks: _topk_blocks,
    }


class Macs(NamedTuple):
    """What a forward pass multiplies and adds.

    Attributes:
        total: Multiply-accumulate operations.
        by_module: Those of each module that has any, by its name in the model.
    """

    total: int
    by_module: dict[str, int]


@torch.no_grad()
def count_macs(model: nn.Module, *inputs: Any) -> Macs:
    """Run a model in evaluation mode and count its multiply-accumulate operations (MACs).

    One MAC is two FLOPs of torch's counter, and what papers on vision transformers call a FLOP.
    Products of matrices, convolutions and attention count, whichever backend runs it: on each
    edge and head two products of head_dim. What is done entry by entry does not count: norms,
    activations, softmax, pooling, biases. Attention to the k largest counts every logit and, as
    published, every value. Ragged sets count as they run, with their padding; the backend
    "reference" is not counted, for it multiplies entry by entry.

    Args:
        model: Any module; its mode is the same afterwards.
        inputs: What the model takes. One image suffices; on the device "meta" nothing is computed,
            which models with a bias by bucket do not support.

    Example:
        >>> count_macs(nn.Linear(3, 4), torch.zeros(2, 3)).total
        24
    """
    counting = FlopCounterMode(display=False, custom_mapping=_formulas())
    with evaluating(model), counting as counter:
        model(*inputs)
    counted = {name: sum(of.values()) // 2 for name, of in counter.get_flop_counts().items()}
    root = type(model).__name__ + "."
    parts = {n.removeprefix(root): macs for n, macs in counted.items() if n.startswith(root)}
    return Macs(counted.get("Global", 0), parts)
