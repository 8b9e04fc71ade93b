"""What is done to a layer after `accelerate`: hooks, other parts, methods, options, copies."""

from __future__ import annotations

import copy
import pickle
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from torch.nn.utils import parametrizations, parametrize, prune
from torch_geometric.nn import Aggregation, MessagePassing
from torch_geometric.nn.dense import Linear

from battery.drawn_calls import Given, mostly_ours, plain_call
from battery.drawn_layers import LAYERS, WIDTH, Rng, draw_layer, one
from battery.forms import answer, differs
from battery.line import Line, timed
from graphtheory import accelerate
from graphtheory.nn.conv import on_core

HISTORIES = 10_000
OF_PYG = {"propagate", "_use_segment_matmul_heuristic_output"}  # set in a call or an explanation
Seen = list[Any]
Change = Callable[[nn.Module, Rng, Seen], None]


class LowRank(nn.Module):
    """A linear map and a product of two narrow ones, as adapters put in the place of a map."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        out, width = base.weight.shape
        self.base, self.down, self.up = base, nn.Linear(width, 2), nn.Linear(2, out)
        self.to(base.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the frozen map and the low-rank one."""
        return self.base(x) + self.up(self.down(x)).tanh()


def _parts(layer: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, part) for name, part in layer.named_modules() if name]


def _linear_parts(layer: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(n, p) for n, p in _parts(layer) if type(p) in (Linear, nn.Linear)]


def _put(layer: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(layer.get_submodule(parent), last, part)


def _shapes(args: Any) -> list[Any]:
    return [tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__ for a in args]


def _hook_a_part(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    name, part = one(rng, *_parts(layer)) if _parts(layer) else ("", layer)
    kind = one(rng, "forward", "forward_pre", "full_backward")
    note = {
        "forward": lambda m, args, out: seen.append((name, _shapes(args))),
        "forward_pre": lambda m, args: seen.append((name, _shapes(args))),
        "full_backward": lambda m, grads, of_out: seen.append(name),
    }[kind]
    getattr(part, f"register_{kind}_hook")(note)


def _hook_that_changes(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    part = one(rng, layer, *(part for _, part in _parts(layer)))
    part.register_forward_hook(lambda m, args, out: out * 1.5 if isinstance(out, Tensor) else None)


def _hook_on_messages(layer: Any, rng: Rng, seen: Seen) -> None:
    stage = one(rng, "propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    when = one(rng, "_pre", "")
    layer = next((m for m in layer.modules() if isinstance(m, MessagePassing)), None)
    if layer is not None:

        def note(*given: Any) -> None:
            seen.append(f"{stage}{when}")

        getattr(layer, f"register_{stage}_forward{when}_hook")(note)


def _adapter(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    if _linear_parts(layer):
        name, part = one(rng, *_linear_parts(layer))
        torch.manual_seed(0)
        _put(layer, name, LowRank(part))


def _plain_linear(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    if _linear_parts(layer):
        name, part = one(rng, *_linear_parts(layer))
        torch.manual_seed(0)
        out, width = part.weight.shape
        _put(layer, name, nn.Linear(width, out, bias=bool(rng.random() < 0.5)).double())


def _wrapped(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    if _linear_parts(layer):
        name, part = one(rng, *_linear_parts(layer))
        _put(layer, name, nn.Sequential(part, one(rng, nn.Identity(), nn.Tanh())))


def _pruned(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    if _linear_parts(layer):
        part = one(rng, *_linear_parts(layer))[1]
        prune.l1_unstructured(part, "weight", 0.5)
        with torch.no_grad():  # as a step of an optimizer does
            part.weight_orig.mul_(1.5)


def _normed(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    if _linear_parts(layer):
        _, part = one(rng, *_linear_parts(layer))
        how = one(rng, parametrizations.weight_norm, _old_weight_norm, parametrizations.orthogonal)
        torch.manual_seed(0)
        how(part)


def _old_weight_norm(part: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(part)
    with torch.no_grad():
        part.weight_g.mul_(1.5)


class _Double(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def _own_parameter(layer: nn.Module, rng: Rng, seen: Seen) -> None:
    names = [n for n, _ in layer.named_parameters(recurse=False)]
    if names:
        parametrize.register_parametrization(layer, one(rng, *names), _Double())


def _other_reduction(layer: Any, rng: Rng, seen: Seen) -> None:
    if isinstance(layer, MessagePassing):
        kinds = (pyg.MaxAggregation, pyg.MeanAggregation, pyg.SumAggregation, pyg.MedianAggregation)
        layer.aggr_module = one(rng, *kinds)()


def _other_method(layer: Any, rng: Rng, seen: Seen) -> None:
    name = one(rng, "message", "aggregate", "update", "forward", "propagate")
    before = getattr(layer, name, None)
    if before is None:
        name, before = "forward", layer.forward

    def after(self: Any, *args: Any, **named: Any) -> Any:
        seen.append(name)
        out = before(*args, **named)
        return out * 2 if isinstance(out, Tensor) else out

    setattr(layer, name, types.MethodType(after, layer))


def _doubled(layer: Any, rng: Rng, seen: Seen) -> None:
    """Messages or, of GPS, attention."""
    if isinstance(layer, pyg.GPSConv):
        layer.attn.register_forward_hook(lambda m, args, out: (2 * out[0], out[1]))
        return
    before = layer.message
    layer.message = lambda *args, **named: 2 * before(*args, **named)


def _explained(layer: Any, rng: Rng, seen: Seen) -> None:
    if isinstance(layer, MessagePassing):
        layer.explain = True
        layer.explain_message = lambda inputs, dim_size=None: inputs * 0.5
        if rng.random() < 0.3:
            layer.explain = False


def _other_option(layer: Any, rng: Rng, seen: Seen) -> None:
    options = {
        "negative_slope": 0.7, "concat": False, "normalize": True, "root_weight": False,
        "improved": True, "K": 3, "alpha": 0.5, "decomposed_layers": 2, "add_self_loops": False,
        "dropout": 1.0, "project": False, "fill_value": 2.0, "node_dim": one(rng, 0, -2),
    }  # fmt: skip
    held = [n for n in options if hasattr(layer, n)]
    if held:
        name = one(rng, *held)
        setattr(layer, name, options[name])
        if name == "dropout":
            layer.train()


def _other_attention(layer: Any, rng: Rng, seen: Seen) -> None:
    if isinstance(layer, pyg.GPSConv):
        torch.manual_seed(0)
        more = one(rng, {"num_heads": 3}, {"add_bias_kv": True}, {"add_zero_attn": True}, {})
        layer.attn = nn.MultiheadAttention(
            WIDTH, **({"num_heads": 2} | more), batch_first=True
        ).double()
        prune_it = rng.random() < 0.3
        if prune_it:
            prune.l1_unstructured(layer.attn, "in_proj_weight", 0.5)


CHANGES: dict[str, Change] = {
    "a hook on a part": _hook_a_part, "a hook that changes": _hook_that_changes,
    "a hook on messages": _hook_on_messages, "a low-rank adapter": _adapter,
    "torch's linear map": _plain_linear, "a part wrapped": _wrapped, "pruning": _pruned,
    "a norm of weights": _normed, "a parameter of its own": _own_parameter,
    "another reduction": _other_reduction, "another method": _other_method,
    "doubled messages": _doubled, "an explanation": _explained, "another option": _other_option,
    "another attention": _other_attention,
}  # fmt: skip


@contextmanager
def _seen_by_all(on: bool, seen: Seen) -> Iterator[None]:
    """A hook of torch on every module that a drop-in calls as often as PyG.

    It runs `ops` in place of aggregations, and may read a parametrized weight less often.
    """
    if not on:
        yield
        return

    def see(module: nn.Module, args: Any, out: Any) -> None:
        if not isinstance(module, (Aggregation, parametrize.ParametrizationList, _Double)):
            seen.append(type(module).__name__)

    handle = hooks_of_all.register_module_forward_hook(see)
    try:
        yield
    finally:
        handle.remove()


def _twin(layer: nn.Module, rng: Rng) -> nn.Module:
    how = one(rng, lambda m: m, lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)))
    try:
        twin: nn.Module = how(layer)
    except Exception:  # of a hook or a method that was put on it, which torch itself refuses
        return layer
    return twin


def history(number: int, seed: int, only: tuple[str, ...] = ()) -> tuple[str, str]:
    """What is wrong after some changes, "" if nothing; and what was done."""
    rng = np.random.default_rng([seed, number])
    name = list(LAYERS)[number % len(LAYERS)]
    theirs = draw_layer(name, rng).double()
    given = plain_call(name, theirs, rng)
    theirs.train(bool(rng.random() < 0.5))
    ours = copy.deepcopy(theirs)
    report = accelerate(ours)
    done = [str(theirs).partition("\n")[0]]
    undone = False
    for _ in range(int(rng.integers(1, 4))):
        what = one(rng, *(only or CHANGES))
        done.append(what)
        state, seen = rng.bit_generator.state, ([], [])
        for layer, notes in ((theirs, seen[0]), (ours, seen[1])):
            rng.bit_generator.state = state
            try:
                CHANGES[what](layer, rng, notes)
            except (
                AssertionError,
                KeyError,
                RuntimeError,
                TypeError,
                ValueError,
            ):  # a change on top of one of its kind
                if layer is ours:
                    raise
                return "", ""
        of_all = rng.random() < 0.1
        wrong = _compared(theirs, ours, given, seen, of_all)
        if wrong:
            return wrong, "; ".join(done)
        if not undone and rng.random() < 0.2:
            done.append("undo")
            try:
                report.undo()
            except RuntimeError as error:
                if not any(words in str(error) for words in ("is a Parametrized", "was replaced")):
                    return f"undo: {error}", "; ".join(done)
            else:
                undone = True
                if (
                    type(ours).__name__ != type(theirs).__name__
                    or type(ours).__module__ != type(theirs).__module__
                ):
                    return f"undo left {type(ours)}", "; ".join(done)
                left = (vars(ours).keys() ^ vars(theirs).keys()) - OF_PYG
                if left:
                    return f"undo left {left}", "; ".join(done)
                wrong = _compared(theirs, ours, given, seen, False)
                if wrong:
                    return wrong, "; ".join(done)
    return "", "; ".join(done)


def _compared(theirs: Any, ours: Any, given: Given, seen: Any, of_all: bool) -> str:
    answers = []
    for layer, notes in ((theirs, seen[0]), (ours, seen[1])):
        notes.clear()
        with _seen_by_all(of_all, notes):
            torch.manual_seed(1)
            answers.append(answer(layer, given, "plain", torch.float64))
    wrong = differs(answers[1], answers[0])
    if (
        not wrong
        and sorted(map(str, seen[0])) != sorted(map(str, seen[1]))
        and not any(isinstance(a, Exception) for a in answers)
    ):
        wrong = f"hooks saw {seen[1]}, expected {seen[0]}"
    return wrong


def after(share: float, seed: int) -> list[Line]:
    """10,000 histories of changes of a layer after `accelerate`."""
    line = Line(
        "after", "what is done to a layer after `accelerate` has the effect on results, gradients "
        "and hooks that it has on PyG's, and `undo` gives PyG's layer back", "layers that do not "
        "look again, and doubled messages", least_caught=0.4,  # along matrices there are none
    )  # fmt: skip
    with timed(line), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of old weight norms
        for number in range(max(2 * len(LAYERS), round(share * HISTORIES))):
            with mostly_ours(number // len(LAYERS)):
                wrong, done = history(number, seed)
            line.trials += 1
            if wrong:
                line.broken.append(f"history {number}: {done}: {wrong}")
            elif number % 20 < 2:
                line.planted += 1
                with (
                    mock.patch.object(on_core, "changed", lambda layer, drop_in: ""),
                    mock.patch.object(on_core.OnCore, "_is_first", lambda *_, **__: False),
                ):
                    line.caught += bool(history(number, seed, ("doubled messages",))[0])
    return [line]
