"""Multiplications and additions of a model: counted while it runs, and by the papers' formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    count, receivers, senders = rest[6]
    return 4 * count * receivers * senders * query[1] * query[2]


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


@dataclass(frozen=True)
class GlobalCost:
    """MACs of blocks in which every token of an image attends to every other: DeiT, STViT-DeiT.

    MLPs are of 4 times the width. Patches, norms and the head do not count.

    Args:
        patches: N.
        tokens: M, semantic tokens.
        dim: C.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        supplement A.2, eqs. (1) to (4).

    Example:
        >>> cost = GlobalCost(patches=196, tokens=16, dim=384)
        >>> f"{cost.deit() / 1e9:.2f} {cost.stvit() / 1e9:.2f} {cost.stvit_printed() / 1e9:.2f}"
        '4.52 1.85 1.81'
    """

    patches: int
    tokens: int
    dim: int

    def attention(self, nodes: int) -> int:
        """4 n C^2 + 2 n^2 C, the attention of eqs. (1) and (2)."""
        return 4 * nodes * self.dim**2 + 2 * nodes**2 * self.dim

    def mlp(self, nodes: int) -> int:
        """8 n C^2, the FFN of eqs. (1) and (2)."""
        return 8 * nodes * self.dim**2

    def semantic_attention(self, senders: int) -> int:
        """2 M C^2 + 2 K C^2 + 2 M K C; eq. (3) has K = N senders."""
        m, c = self.tokens, self.dim
        return 2 * m * c**2 + 2 * senders * c**2 + 2 * m * senders * c

    def deit(self, depth: int = 12) -> int:
        """Eq. (4) for DeiT."""
        return depth * (self.attention(self.patches) + self.mlp(self.patches))

    def stvit_printed(self) -> int:
        """Eq. (4) for STViT with 4 + 2 + 6 blocks, as printed.

        It leaves out the MLPs of the two middle blocks, 16 M C^2, and that the second of them has
        N + M senders, 2 M C^2 + 2 M^2 C; `stvit` counts both.
        """
        n, m, c = self.patches, self.tokens, self.dim
        return (
            52 * n * c**2 + 12 * m**2 * c + 76 * m * c**2 + 8 * n**2 * c + 4 * m * n * c
        )  # fmt: skip

    def stvit(self, base: int = 4, semantic: int = 2, depth: int = 12) -> int:
        """Of all blocks: with the patches' embedding that gives the figures of the same table 6.

        Args:
            base: Blocks on patches.
            semantic: Blocks that follow, in which semantic tokens attend to patches.
            depth: Blocks in all.
        """
        n, m, rest = self.patches, self.tokens, depth - base - semantic
        first = self.semantic_attention(n) + self.mlp(m)
        further = self.semantic_attention(n + m) + self.mlp(m)
        among = self.attention(m) + self.mlp(m)
        return self.deit(base) + first + (semantic - 1) * further + rest * among


@dataclass(frozen=True)
class WindowCost:
    """MACs of a block in which tokens attend within windows: Swin, STViT-Swin.

    Args:
        patches: N, of the whole image.
        window: W, patches of a window.
        tokens: M, semantic tokens of a window.
        dim: C.

    Source:
        The same supplement, eqs. (5) to (7). Differs where the print is no count of the layer: it
        has 2 W^2 N C for 2 W N C in (5), 8 M C^2 for 8 (N / W) M C^2 in (6), and
        2 (N / W) M^2 C for 2 N M C in (7), where a window's M tokens attend to its W patches.

    Example:
        >>> WindowCost(patches=196, window=49, tokens=9, dim=384).on_patches()
        354192384
    """

    patches: int
    window: int
    tokens: int
    dim: int

    @property
    def _all_tokens(self) -> int:
        return self.patches // self.window * self.tokens

    def on_patches(self) -> int:
        """4 N C^2 + 2 W N C + 8 N C^2, eq. (5)."""
        return 12 * self.patches * self.dim**2 + 2 * self.window * self.patches * self.dim

    def on_tokens(self) -> int:
        """4 (N/W) M C^2 + 2 M^2 (N/W) C + 8 (N/W) M C^2, eq. (6)."""
        return 12 * self._all_tokens * self.dim**2 + 2 * self.tokens * self._all_tokens * self.dim

    def semantic_attention(self) -> int:
        """2 (N/W) M C^2 + 2 N C^2 + 2 N M C, eq. (7), without an MLP."""
        within = 2 * self.patches * self.tokens * self.dim
        return 2 * (self._all_tokens + self.patches) * self.dim**2 + within
