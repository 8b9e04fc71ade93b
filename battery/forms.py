"""Every form of every argument that a layer may be given, beside PyG's layer."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from battery.drawn_calls import Given, copied, draw_call, mostly_ours
from battery.drawn_layers import LAYERS, draw_layer, one
from battery.line import Line, timed
from graphtheory import accelerate
from graphtheory.nn.conv.adjacency import _ids_of

CALLS = 10_000
TOLERANCE = 1e-4  # of the largest entry
MODES = ("plain", "plain", "plain", "inference", "inputs change", "outputs change")
# What is refused in words, where PyG computes: its two forms of `propagate` read such a pair
# differently, it does not look at such weights, nothing is left after such dropout, and it cuts
# such relations to whole numbers.
REFUSED = (
    "flow: got", "expected one tensor with flow", "edge_weight: got some beside a sparse",
    "dropout: got 1.0", "edge_type: got numbers with a fraction",
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
            if mode == "inputs change":  # as by a residual in place
                tree_map_only(Tensor, _changed, args[0])
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
        # of an EdgeIndex in inference mode, and of attention among no nodes
        unwritten = proper or "version_counter" in said or "reshape tensor of 0" in said
        return "" if unwritten else f"computed, where PyG says {said}"
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


def _wide(value: Any) -> Any:
    """With ids of 64 bits: torch's gradient of a gather by expanded ones of 32 is wrong."""
    return tree_map_only(Tensor, lambda t: t.long() if t.dtype is torch.int32 else t, value)


def call(number: int, seed: int, compute: Any = answer) -> tuple[str, str]:
    """What is wrong with a drawn call, "" if nothing; and the call in words."""
    rng = np.random.default_rng([seed, number])
    name = list(LAYERS)[number % len(LAYERS)]
    theirs = draw_layer(name, rng)
    given, mode = draw_call(name, theirs, rng), one(rng, *MODES)
    theirs.train(bool(rng.random() < 0.5))
    if 0 in [len(t) for t in _tensors(given.args[0])] and mode == "inputs change":
        mode = "plain"  # PyG cuts the graph there
    ours = copy.deepcopy(theirs)
    accelerate(ours)
    wrong = ""
    for dtype in one(rng, (torch.float32, torch.float64), (torch.float64,)):
        with mostly_ours(number // len(LAYERS)):
            found = compute(ours.to(dtype), given, mode, dtype)
        wanted = answer(theirs.to(dtype), given, mode, dtype)
        wrong = differs(found, wanted, given.proper)
        if wrong and "32-bit" in given.words:
            wide = given._replace(args=_wide(given.args))
            wrong = differs(_wide(found), answer(theirs, wide, mode, dtype), given.proper)
        if "off by" not in wrong:  # at a kink of LeakyReLU the last bit decides
            break
    if "in place" in wrong.replace("inplace", "in place") and name == "GPSConv":
        wrong = ""  # it keeps x, not a copy, and torch says so
    ends = "raises" if isinstance(wanted, Exception) else "computes"
    if not isinstance(wanted, Exception) and not wanted["output 0"].isfinite().any():
        ends += " no numbers"
    ends += ", ours refuses" if isinstance(found, Exception) and ends[0] == "c" else ""
    return wrong, f"{theirs} {given.words}, {mode}, {dtype}: PyG {ends}"


def _spoiled(layer: nn.Module, given: Given, mode: str, dtype: torch.dtype) -> Any:
    """An answer whose first entry is off."""
    found = answer(layer, given, mode, dtype)
    if isinstance(found, dict) and found["output 0"].isfinite().any():
        first = found["output 0"].detach().clone()
        at, known = first.view(-1), first.isfinite().flatten()
        at[known.nonzero()[0]] += 0.01 * (1 + at[known].abs().max())
        found["output 0"] = first
    return found


def forms(share: float, seed: int) -> list[Line]:
    """10,000 calls of all layers in drawn forms of each argument."""
    line = Line(
        "forms", "after `accelerate` a layer gives what PyG's gives, or an error, in whatever "
        "form its arguments are", "an entry of the output changed by a hundredth",
    )  # fmt: skip
    line.figures = {"calls that PyG refuses": 0, "calls that ours alone refuses": 0}
    with timed(line), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of sparse matrices
        for number in range(max(len(LAYERS), round(share * CALLS))):
            wrong, words = call(number, seed)
            line.trials += 1
            line.figures["calls that PyG refuses"] += words.endswith("raises")
            line.figures["calls that ours alone refuses"] += words.endswith("ours refuses")
            if wrong:
                line.broken.append(f"call {number}: {words}: {wrong}")
            elif number % 20 < 2 and words.endswith("computes") and "(0, 0)" not in words:
                line.planted += 1
                line.caught += bool(call(number, seed, _spoiled)[0])
    return [line]
