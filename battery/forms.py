"""Every form of every argument that a layer may be given, beside PyG's layer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from battery.drawn_calls import Given, copied, draw_call
from battery.drawn_layers import LAYERS, draw_layer, one
from graphtheory import accelerate
from graphtheory.nn.conv.adjacency import _ids_of

CALLS = 10_000
TOLERANCE = 1e-4  # of the largest entry
MODES = ("plain", "plain", "plain", "inference", "inputs change", "outputs change")
# What is refused in words, where PyG computes: its two forms of `propagate` read such a pair
# differently, it does not look at such weights, and nothing is left after such dropout.
REFUSED = (
    "flow: got", "expected one tensor with flow", "edge_weight: got some beside a sparse",
    "dropout: got 1.0",
)  # fmt: skip


def answer(layer: nn.Module, given: Given, mode: str, dtype: torch.dtype = torch.float32) -> Any:
    """Output and gradients by name, or what was raised."""
    args, named = copied(given.args, dtype), copied(given.named, dtype)
    layer.zero_grad()
    leaves = _tensors((args, named))
    try:
        with torch.inference_mode(mode == "inference"):
            if mode == "inputs change":  # torch lets no leaf change that needs a gradient
                args, named = tree_map_only(Tensor, _not_a_leaf, (args, named))
            outs = _tensors(layer(*args, **named))
            if mode == "inputs change":
                tree_map_only(Tensor, _changed, (args, named))
            elif mode == "outputs change":
                outs[0] = _changed(outs[0])
        found = {f"output {i}": t for i, t in enumerate(outs)}
        if mode == "inference" or not any(t.requires_grad for t in outs):
            return found
        sums = [t.sin().sum().double() for t in outs if t.requires_grad]
        torch.stack(sums).sum().backward()
    except Exception as error:
        return error
    by_name = {f"argument {i}": t for i, t in enumerate(leaves)} | dict(layer.named_parameters())
    return found | {
        f"gradient of {n}": t.grad for n, t in by_name.items() if t.requires_grad and t.is_leaf
    }


def _not_a_leaf(t: Tensor) -> Tensor:
    plain = type(t) is Tensor and t.layout is torch.strided and t.is_floating_point()
    return t * 1.5 if plain else t


def _changed(t: Tensor) -> Tensor:
    return t.add_(1) if not t.is_leaf and t.is_floating_point() else t


def _tensors(value: Any) -> list[Tensor]:
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, SparseTensor):
            row, col, leaf = leaf.coo()
            found += [row, col]
        if isinstance(leaf, EdgeIndex):
            leaf = leaf.as_tensor()
        if isinstance(leaf, Tensor) and leaf.layout is not torch.strided:
            found += [*_ids_of(leaf), leaf._values() if leaf.is_sparse else leaf.values()]
        elif isinstance(leaf, Tensor):
            found.append(leaf)
    return found


def differs(found: Any, wanted: Any, proper: bool = True) -> str:
    """How an answer differs from PyG's, in words; "" if it does not."""
    if isinstance(found, Exception):
        refused = any(words in str(found) for words in REFUSED)
        if isinstance(wanted, Exception) or refused or not proper:
            return ""
        return f"{type(found).__name__} ({str(found)[:150]}), where PyG computes"
    if isinstance(wanted, Exception):  # what PyG has not written yet may be computed
        said = f"{type(wanted).__name__} ({str(wanted)[:100]})"
        return "" if proper else f"computed, where PyG says {said}"
    if found.keys() != wanted.keys():
        return f"has {list(found)}, expected {list(wanted)}"
    return next(filter(None, (_apart(n, found[n], t) for n, t in wanted.items())), "")


def _apart(name: str, mine: Tensor | None, right: Tensor | None) -> str:
    if mine is None or right is None:  # no gradient is one of zeros
        other = mine if right is None else right
        if other is None:
            return ""
        mine, right = (other.new_zeros(other.shape) if t is None else t for t in (mine, right))
    kinds = [(tuple(t.shape), t.dtype) for t in (mine, right)]
    if kinds[0] != kinds[1]:
        return f"{name}: {kinds[0]}, expected {kinds[1]}"
    if "output" in name and right.is_contiguous() and not mine.is_contiguous():
        return f"{name}: not contiguous"
    mine, right = mine.detach().double(), right.detach().double()
    known = right.isfinite()  # PyG's gradient at a degree of 0 is none
    scale = max([1.0, *right[known].abs().tolist()])
    off = (mine - right)[known].abs().nan_to_num(nan=torch.inf)
    worst = float(off.max()) if off.numel() else 0.0
    return f"{name}: off by {worst:.1e} of {scale:.1e}" if worst > TOLERANCE * scale else ""


def _by_64_bits(given: Given) -> Given:
    """The same with wide ids: torch's gradient of a gather by expanded narrow ones is wrong."""
    args = tree_map_only(Tensor, lambda t: t.long() if t.dtype is torch.int32 else t, given.args)
    return given._replace(args=args)


def call(number: int, seed: int, compute: Any = answer) -> tuple[str, str]:
    """What is wrong with a drawn call, "" if nothing; and the call in words."""
    rng = np.random.default_rng([seed, number])
    name = list(LAYERS)[number % len(LAYERS)]
    theirs = draw_layer(name, rng)
    given, mode = draw_call(name, theirs, rng), one(rng, *MODES)
    theirs.train(bool(rng.random() < 0.5))
    dtype = one(rng, torch.float32, torch.float32, torch.float64)
    ours = copy.deepcopy(theirs.to(dtype))
    accelerate(ours)
    found, wanted = compute(ours, given, mode, dtype), answer(theirs, given, mode, dtype)
    wrong = differs(found, wanted, given.proper)
    if wrong and "32-bit" in given.words:
        wrong = differs(found, answer(theirs, _by_64_bits(given), mode, dtype), given.proper)
    ends = "raises" if isinstance(wanted, Exception) else "computes"
    return wrong, f"{theirs} {given.words}, {mode}, {dtype}: PyG {ends}"
