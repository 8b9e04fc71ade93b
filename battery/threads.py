"""A model answers callers in several threads as it answers them one by one."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from battery.cache_arguments import NODES, Argument, normal
from battery.cache_layers import LAYERS, WIDTH
from battery.line import Line, timed
from graphtheory import accelerate
from graphtheory.nn.conv import adjacency
from graphtheory.nn.conv.on_core import OnCore
from graphtheory.vision.integrations import timm, token_hooks
from graphtheory.vision.models import ReducedViT, swin_pico, vit_pico
from graphtheory.vision.models.stvit import stvit_pico
from graphtheory.vision.nn import Fuse, Keep, Merge

THREADS = (1, 2, 4, 8)
TRIALS = 2_000
CALLS = 12  # of a trial
Answer = list[Tensor]
Ask = Callable[[int], Answer]  # of the number of a call


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads take turns every microsecond, and not every five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _same(found: Tensor, wanted: Tensor) -> bool:
    """Whether two answers have the same bits, or those of a sum in another order.

    Some gradients are 0 but for rounding, as that of the bias of keys.
    """
    if found.shape != wanted.shape or torch.equal(found, wanted):
        return found.shape == wanted.shape
    return bool((found - wanted).abs().max() <= 1e-5 * wanted.abs().max() + 1e-6)


def _wrong(ask: Ask, wanted: list[Answer], threads: int) -> str:
    """What is wrong with answers that so many threads get at once; "" if nothing."""

    def told(number: int) -> str:
        try:
            found = ask(number)
        except Exception as error:  # of a state that another call has left
            return f"call {number}: {type(error).__name__} ({str(error)[:200]})"
        pairs = zip(found, wanted[number], strict=True)
        off = [(a.shape, b.shape) for a, b in pairs if not _same(a, b)]
        return f"call {number}: another answer, shapes {off}" if off else ""

    with _short_turns(), ThreadPoolExecutor(threads) as pool:
        return next(filter(None, pool.map(told, range(len(wanted)))), "")


# Vision: a kind of model and a rule give images -> what is compared.

Model = Callable[[Tensor], Answer]


def _patched(zoo: Any, name: str, rule: Any) -> Model | None:
    """A model of transformers with a rule, and its trace; None where `apply` refuses the rule."""
    from graphtheory.vision.integrations.transformers import apply

    model = zoo.tiny(name)
    try:
        apply(model, rule)
    except ValueError:
        return None
    read = zoo.Read(model)

    def answer(images: Tensor) -> Answer:
        out = [read(images)]
        made = getattr(model, token_hooks.INSTALLED, None)
        return out + (list(token_hooks.trace(model)) if hasattr(made, "rules") else [])

    return answer


class _Attention(nn.Module):
    """Attention of a qkv map and a proj map, as timm's."""

    num_heads, scale = 2, 16**-0.5

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


class _Block(nn.Module):
    """A pre-norm block, as timm's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(32), _Attention(), nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class _Patches(nn.Module):
    """Patches of 8 pixels, as timm's."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, 32, 8, 8)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).mT


class _TimmLike(nn.Module):
    """Three blocks without a class token, as timm's VisionTransformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed, self.blocks = _Patches(), nn.Sequential(*(_Block() for _ in range(3)))

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.patch_embed(images)).mean(1)


def _of_timm(rule: Any, maps: bool) -> Model:
    """A model of timm's structure with a rule: its output, or every other time its maps."""
    model = _TimmLike().eval()
    timm.apply(model, rule)
    return lambda images: timm.attention_maps(model, images) if maps else [model(images)]


def _own(model: Any) -> Model:
    model = model.eval()
    return lambda images: [model(images), *(m.weights for m in model.attention_maps(images))]


def vision_models(rule: str | None = None) -> dict[str, Callable[[], Model | None]]:
    """Every model with every rule, or with that of a name."""
    made: dict[str, Callable[[], Model | None]] = {}
    if rule is None:
        vit = vit_pico(out_channels=5)
        for name, own in {
            "ReducedViT, Keep": lambda: ReducedViT(vit, {1: Keep(0.5), 2: Keep(0.5)}),
            "ReducedViT, Merge": lambda: ReducedViT(vit, {1: Merge(9)}, proportional=True),
            "ReducedViT, Fuse": lambda: ReducedViT(vit, {2: Fuse(0.5)}, inside=False),
            "STViT": lambda: stvit_pico(out_channels=5),
            "Swin": lambda: swin_pico(out_channels=5),
        }.items():
            made[name] = lambda own=own: _own(own())
    zoo = importlib.import_module("benchmarks.tokens")
    names = zoo.MODELS if importlib.util.find_spec("transformers") else ()
    for kind, what in zoo.rules().items():
        if rule in (None, kind):
            for name in names:
                made[f"{name}, {kind}"] = lambda n=name, w=what: _patched(zoo, n, w)
            if kind != "TopK":
                for maps in (False, True):
                    title = f"timm{' and its maps' if maps else ''}, {kind}"
                    made[title] = lambda w=what, maps=maps: _of_timm(w, maps)
    return made


def _asked(model: Model, seed: int) -> Ask:
    """Calls with one to three images."""
    draw = torch.Generator().manual_seed(seed)
    images = [torch.randn(1 + i % 3, 3, 32, 32, generator=draw) for i in range(CALLS)]

    @torch.no_grad()
    def ask(number: int) -> Answer:
        return model(images[number])

    return ask


class _OfAll:
    """The state of a call as one object of all threads."""

    def __init__(self) -> None:
        self.here = token_hooks.Call()


def patched_models(share: float, seed: int) -> list[Line]:
    """Models with fewer tokens, of transformers, of timm's structure, and our own."""
    line = Line(
        "threads", "1, 2, 4 and 8 threads get a vision model's outputs, traces and attention maps "
        "as one by one", "the state of a call on the model", least_caught=0.5,
    )  # fmt: skip
    with timed(line):
        makers = list(vision_models().items())
        order = np.random.default_rng(seed).permutation(len(makers))
        for trial in range(max(len(THREADS), round(share * TRIALS))):
            name, make = makers[order[trial % len(order)]]
            model = make()
            if model is None:  # the rule is refused
                continue
            ask, threads = _asked(model, trial), THREADS[trial % len(THREADS)]
            line.trials += 1
            if told := _wrong(ask, [ask(i) for i in range(CALLS)], threads):
                line.broken.append(f"{name}, {threads} threads: {told}")
        for rule in ("Keep", "Fuse", "Merge", "Semantic"):
            planted = list(vision_models(rule).values())
            for make in planted[seed % 3 :: max(3, round(1 / (10 * share)))]:
                with mock.patch.object(token_hooks, "Calls", _OfAll):
                    model = make()
                if model is None:
                    continue
                ask = _asked(model, seed)
                wanted = [ask(i) for i in range(CALLS)]
                line.planted += 1
                line.caught += any(_wrong(ask, wanted, 8) for _ in range(5))
    return [line]


# The core: layers on graphs that callers share or have alone.


def _layer(
    name: str, rng: np.random.Generator, first: bool = False
) -> tuple[Ask, Callable[[], list[Answer]]]:
    """Calls of an accelerated layer on four graphs in turn, and what fresh layers answer."""
    kind = LAYERS[name]
    torch.manual_seed(int(rng.integers(2**31)))
    layer = kind.make()
    accelerate(layer)
    forms = {n: some[0] if first else str(rng.choice(some)) for n, some in kind.made_here.items()}
    sets = [{n: Argument(form, rng) for n, form in forms.items()} for _ in range(4)]
    x = normal(NODES, WIDTH)(rng)[0]

    def run(layer: nn.Module, given: dict[str, Any]) -> Answer:
        leaves = [x.clone().requires_grad_(), *layer.parameters()]
        found = kind.call(layer, leaves[0], **given)
        outs = [o for o in found.values() if o is not None] if isinstance(found, dict) else [found]
        if not any(out.requires_grad for out in outs):
            return outs
        total = torch.stack([out.sin().sum() for out in outs]).sum()
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
        return [out.detach() for out in outs] + [g for g in grads if g is not None]

    def ask(number: int) -> Answer:
        return run(layer, {n: a.value for n, a in sets[number % 4].items()})

    def fresh() -> list[Answer]:
        copies = [{n: a.copy() for n, a in of.items()} for of in sets]
        answers = [run(copy.deepcopy(layer), given) for given in copies]
        return [answers[number % 4] for number in range(CALLS)]

    return ask, fresh


@contextmanager
def _edges_of_all() -> Iterator[None]:
    """Keep the edges of a call where every call writes its own, and wait for one that does."""
    held, build = [None], adjacency._build

    def by_held(given: Any, *key: Any) -> Any:
        held[0] = given
        until = time.monotonic() + 0.1
        while held[0] is given and time.monotonic() < until:
            time.sleep(1e-4)
        return build(held[0], *key)

    with (
        mock.patch.object(adjacency, "_build", by_held),
        mock.patch.object(OnCore, "_is_first", lambda *_, **__: False),  # which sorts no edges
    ):
        yield


def layers(share: float, seed: int) -> list[Line]:
    """Accelerated layers, forward and backward, on graphs that nobody has seen before."""
    line = Line(
        "threads", "1, 2, 4 and 8 threads get a layer's outputs and gradients as one by one, on "
        "graphs that they share and others", "the edges of a call where every call writes them",
        least_caught=0.5,
    )  # fmt: skip
    names = list(LAYERS)
    with timed(line), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        order = np.random.default_rng(seed).permutation(len(names))
        for trial in range(max(len(THREADS), round(share * TRIALS))):
            rng, name = np.random.default_rng([seed, trial]), names[order[trial % len(names)]]
            threads = THREADS[trial % len(THREADS)]
            ask, fresh = _layer(name, rng)
            line.trials += 1
            if told := _wrong(ask, fresh(), threads):
                line.broken.append(f"{name}, {threads} threads: {told}")
        for name in ("GCNConv", "GATConv", "TransformerConv", "SAGEConv", "SPDTransformerConv"):
            ask, fresh = _layer(name, np.random.default_rng(seed), first=True)
            wanted = fresh()
            line.planted += 1
            with _edges_of_all():
                line.caught += any(_wrong(ask, wanted, 8) for _ in range(3))
    return [line]


def several_callers(share: float, seed: int) -> list[Line]:
    """Both studies: patched models, and layers that threads share."""
    return [line for part in (patched_models, layers) for line in part(share, seed)]
