"""What is remembered of a tensor is never older than the tensor: random calls and changes."""

from __future__ import annotations

import copy
import gc
import sys
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from battery.cache_arguments import NODES, UNCOUNTED, Argument, normal, ways_of
from battery.cache_layers import LAYERS, WIDTH, remembers
from battery.line import Line, timed
from graphtheory import Neighborhood, accelerate
from graphtheory.graph import content, neighborhood
from graphtheory.nn.conv.sparse_features import _NonZeros

HISTORIES = 10_000
TOLERANCE = 1e-4  # of the largest entry: linear maps by non-zeros are rounded differently


class Call:
    """A layer, its arguments, and what a fresh layer gives for copies of these.

    Args:
        name: Of `LAYERS`.
        forms: Of each argument.
        rng: Of all draws.
        inference: Whether arguments are made in inference mode.
    """

    def __init__(
        self, name: str, forms: dict[str, str], rng: np.random.Generator, inference: bool = False
    ) -> None:
        self.kind = LAYERS[name]
        torch.manual_seed(int(rng.integers(2**31)))
        self.layer = self.kind.make()
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.normal_(0, 0.5)
        accelerate(self.layer)
        self.arguments = {n: Argument(form, rng, inference) for n, form in forms.items()}
        self.x = normal(NODES, WIDTH)(rng)[0]

    @property
    def trains(self) -> bool:
        """Whether torch lets its arguments into a backward pass."""
        return not any(argument.only_in_inference for argument in self.arguments.values())

    def off(self, *, train: bool = True, inference: bool = False) -> float:
        """How far output and gradients are from those of the fresh layer."""
        fresh = copy.deepcopy(self.layer)
        copies = {name: argument.copy() for name, argument in self.arguments.items()}
        given = {name: argument.value for name, argument in self.arguments.items()}
        with torch.inference_mode(inference):
            found, wanted = self._run(self.layer, given), self._run(fresh, copies)
        if train and not inference:
            return _distance(_gradients(*found), _gradients(*wanted))
        self._held = found[0]  # as of a loss that is still to come: what is saved for it lives
        return _distance(found[0], wanted[0])

    def _run(self, layer: nn.Module, given: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        x = self.x.clone().requires_grad_(not torch.is_inference_mode_enabled())
        layer.zero_grad()
        out = self.kind.call(layer, x, **given)
        outs = [o for o in out.values() if o is not None] if isinstance(out, dict) else [out]
        return outs, [x, *layer.parameters()]


def _gradients(outs: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    if any(out.requires_grad for out in outs):
        torch.stack([out.sin().sum() for out in outs]).sum().backward()
    return outs + [torch.zeros(1) if leaf.grad is None else leaf.grad for leaf in leaves]


def _distance(found: list[Tensor], wanted: list[Tensor]) -> float:
    if [t.shape for t in found] != [t.shape for t in wanted]:
        return float("inf")
    size = max([1.0, *(float(t.detach().abs().max()) for t in wanted if t.numel())])
    offs = [
        float((a.detach() - b.detach()).abs().max())
        for a, b in zip(found, wanted, strict=True) if b.numel()
    ]  # fmt: skip
    return float(np.nan_to_num(max(offs), nan=np.inf)) / size


def _by_version(*tensors: Tensor, undisturbed: bool = False) -> Any:
    """What `state_of` would be if torch counted every change."""
    if not all(map(content.is_plain, tensors)):
        return None
    return tuple((_version(t), t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tensors)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _same_version(self: _NonZeros, x: Tensor) -> bool:
    return _version(x) == self.version


@contextmanager
def short_collections() -> Iterator[None]:
    """Let garbage be looked for only among what is made from here on, which takes no time."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def versions_alone() -> Iterator[None]:
    """Believe torch's count of changes wherever the package looks at contents."""
    known = [m for n, m in list(sys.modules.items()) if n.startswith("graphtheory")]
    users = [m for m in known if vars(m).get("state_of") is content.state_of]
    patches = [mock.patch.object(m, "state_of", _by_version) for m in users]
    patches.append(mock.patch.object(_NonZeros, "hold_of", _same_version))
    compare, by_bytes = Neighborhood.check_unchanged, content.state_of

    def by_content(nb: Neighborhood) -> Hashable | None:
        with mock.patch.object(neighborhood, "state_of", by_bytes):
            return compare(nb)  # of its ids nothing is remembered: other ones are refused

    patches.append(mock.patch.object(Neighborhood, "check_unchanged", by_content))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


@dataclass
class Told:
    """What a history of calls showed.

    Attributes:
        calls: How many.
        unseen: Of them, those after a change of what may be remembered that torch does not count.
        same_address: How often a new tensor lay where a freed one had lain.
        wrong: The first wrong answer; "" if there is none.
    """

    calls: int = 0
    unseen: int = 0
    same_address: int = 0
    wrong: str = ""


def _judged(call: Call, train: bool, inference: bool) -> str:
    """What is wrong with a call; "" if nothing."""
    try:
        off = call.off(train=train, inference=inference)
    except Exception as error:  # of a memory that is too old as well
        return f"{type(error).__name__} ({str(error)[:200]})"
    return f"off by {off:.1e}" if off > TOLERANCE else ""


def history(number: int, seed: int) -> Told:
    """3 to 8 calls of one layer, with changes between them."""
    rng = np.random.default_rng([seed, number])
    name = list(LAYERS)[number % len(LAYERS)]
    forms = {n: str(rng.choice(some)) for n, some in LAYERS[name].made_here.items()}
    call = Call(name, forms, rng, inference=bool(rng.random() < 0.2))
    told, steps, last = Told(), [""], ""
    for _ in range(int(rng.integers(3, 9))):
        inference = bool(rng.random() < 0.25) or not call.trains
        call.layer.train(bool(rng.random() < 0.7))
        steps.append("call in inference mode" if inference else "call")
        told.calls += 1
        told.unseen += last in UNCOUNTED
        told.wrong = _judged(call, bool(rng.random() < 0.5), inference)
        if told.wrong:
            told.wrong = f"{name} of {forms}: {told.wrong} after{', '.join(steps)}"
            return told
        last = ""
        if rng.random() < 0.7:
            argument = str(rng.choice(list(forms)))
            way = str(rng.choice(ways_of(forms[argument])))
            call.arguments[argument].change(way, rng)
            told.same_address += way == "freed" and call.arguments[argument].same_address
            last = way if remembers(name, argument, forms[argument]) else ""
            steps.append(f"{argument} {way}")
    return told


def caches(share: float, seed: int) -> list[Line]:
    """10,000 histories of calls and changes of what was given."""
    line = Line(
        "caches", "a layer gives what a fresh one gives for copies, however its arguments were "
        "changed between calls", "torch's count of changes believed", least_caught=0.9,
    )  # fmt: skip
    line.figures = {"calls": 0, "new tensors where a freed one lay": 0}
    with timed(line), short_collections(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        for number in range(max(2 * len(LAYERS), round(share * HISTORIES))):
            told = history(number, seed)
            line.trials += 1
            line.figures["calls"] += told.calls
            line.figures["new tensors where a freed one lay"] += told.same_address
            if told.wrong:
                line.broken.append(f"history {number}: {told.wrong}")
            elif told.unseen and number % 3 == 0:
                with versions_alone():
                    line.caught += bool(history(number, seed).wrong)
                line.planted += 1
    return [line]
