"""Launches on a pretended GPU: a remembered one gives the driver what Triton would give it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import host
import pytest
import torch
from _stub import Launch, pretend
from torch import Tensor
from torch_geometric import nn as pyg
from triton import knobs
from triton.runtime.jit import JITFunction

from graphtheory import Neighborhood, accelerate, ops
from graphtheory.ops.backends.triton import launch, primitives, replay

GPU = pretend()
LONG = Neighborhood.from_edge_index(
    torch.stack([torch.arange(600) % 64, torch.zeros(600).long()]), 64
)
STEPS = {name: forms[host.OURS] for name, forms in host.steps().items() if "new" not in name} | {
    f"attention, {what}": host.attending(partial(ops.attention, neighborhood=LONG, **options))
    for what, options in {"a long row": {}, "dropout": {"dropout": 0.5}}.items()
}
VALUES, BUCKET, OUT = torch.zeros(64, 4), torch.zeros(64, dtype=torch.int64), torch.zeros(8, 8, 4)
CONSTANTS = {"HEADS": 4, "BUCKETS": 8, "ACC": torch.float32, "B": 16, "Z": 8, "G": 4}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_known", {})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kernels whose launches Triton itself has looked at."""
    found, run = [], JITFunction.run

    def looked_at(self: Any, *args: Any, **options: Any) -> Any:
        found.append(self.fn.__name__)
        return run(self, *args, **options)

    monkeypatch.setattr(JITFunction, "run", looked_at)
    return found


def launched(
    bucket: Tensor = BUCKET, values: Tensor = VALUES, out: Tensor = OUT, edges: int = 64,
    grid: tuple[int, ...] = (8,), **changed: Any,
) -> list[Launch]:  # fmt: skip
    """What the driver was given for sums by bucket."""
    given = (primitives.by_bucket, grid, values, bucket, values, out, edges)
    return GPU.seen(lambda: launch.launch(*given, **CONSTANTS | changed))


def by_triton(make: Callable[[], Any]) -> Any:
    """The same where each launch is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "watched", lambda kernel: True)
        patch.setattr(replay, "WATCHED", "True")
        return make()


def without_addresses(found: list[Launch]) -> list[Any]:
    """What is the same in every step: results lie elsewhere, but absent tensors stay absent."""
    return [
        one._replace(args={k: bool(v) if v > 2**32 else v for k, v in one.args.items()})
        for one in found
    ]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_gives_the_driver_the_same(name: str, asked: list[str]) -> None:
    step = STEPS[name]
    by_triton(step)  # makes what layers keep of their edges
    wanted = without_addresses(by_triton(lambda: GPU.seen(step)))
    step()
    asked.clear()
    found = without_addresses(GPU.seen(step))
    assert found == wanted and found and asked == []


@pytest.mark.parametrize("name", STEPS)
def test_no_machine_code_depends_on_a_size(name: str) -> None:
    for one in GPU.seen(STEPS[name]):
        source = GPU.sources[one.function]
        sizes = [p for p in source.fn.params if source.signature[p.name] in ("i32", "i64")]
        assert all(p.do_not_specialize for p in sizes)


@pytest.mark.parametrize("grid", [(3,), (3, 2), (3, 2, 5)])
def test_grid_and_addresses_are_the_same(grid: tuple[int, ...], asked: list[str]) -> None:
    wanted = by_triton(lambda: launched(grid=grid))
    launched(grid=grid)
    asked.clear()
    assert launched(grid=grid) == wanted and asked == []
    assert wanted[0].sizes[:3] == (*grid, 1, 1)[:3] and wanted[0].sizes[3] == 4 * 32
    assert wanted[0].args["values"] == VALUES.data_ptr()


def test_no_program_is_no_launch() -> None:
    assert launched(grid=(3, 0)) == []


def summed(perm: Tensor | None) -> list[Launch]:
    """The same for sums over rows."""
    given = (LONG.indptr, LONG.indices, perm, torch.ones(600, 1), torch.ones(64, 1, 16))
    return GPU.seen(lambda: launch.weighted_sums(*given, torch.empty(64, 1, 16), torch.float32))


CHANGES: dict[str, tuple[Callable[..., list[Launch]], dict[str, Any], dict[str, Any]]] = {
    "type of values": (launched, {}, {"values": VALUES.half()}),
    "type of ids": (launched, {}, {"bucket": BUCKET.byte()}),
    "constant": (launched, {}, {"B": 32}),
    "type of sums": (launched, {}, {"ACC": torch.float64}),
    "warps": (launched, {}, {"warps": 2}),
    "size of 64 bits": (launched, {}, {"edges": 2**31}),
    "absent tensor": (summed, {"perm": None}, {"perm": torch.arange(600)}),
}


def assert_apart(call: Callable[..., list[Launch]], *kinds: dict[str, Any]) -> None:
    """Launches of two kinds run the machine code that Triton would take for each."""
    first, other = (without_addresses(by_triton(lambda of=of: call(**of))) for of in kinds)
    assert first[0].function != other[0].function
    for _ in range(2):
        assert [without_addresses(call(**of)) for of in kinds] == [first, other]


@pytest.mark.parametrize("name", CHANGES)
def test_another_kind_runs_other_code(name: str) -> None:
    assert_apart(*CHANGES[name])


class OfTheKernel(dict[tuple[Any, ...], Any]):
    """Finds any launch of the same kernel, as if nothing else decided the machine code."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return next((known for of, known in self.items() if of[0] is key[0]), default)


@pytest.mark.parametrize("name", CHANGES)
def test_a_key_that_is_too_short_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_known", OfTheKernel())
    with pytest.raises(AssertionError):
        assert_apart(*CHANGES[name])


@pytest.mark.parametrize("edges", [1, 2, 16, 17])
def test_a_size_compiles_nothing(edges: int, asked: list[str]) -> None:
    first = launched()
    asked.clear()
    assert launched(edges=edges)[0].function == first[0].function and asked == []
    assert by_triton(lambda: launched(edges=edges)) == launched(edges=edges)


class Elsewhere(Tensor):
    """On another device."""

    def get_device(self) -> int:
        return 1


@pytest.mark.parametrize(
    "values", [torch.zeros(260)[1:257].view(64, 4), VALUES.as_subclass(Elsewhere)]
)
def test_triton_looks_at_what_is_not_aligned_or_lies_elsewhere(values, asked) -> None:
    for _ in range(2):
        aligned = launched()
        given = (primitives.by_bucket, (8,), VALUES, BUCKET, values, OUT, 64)
        found = GPU.seen(lambda given=given: launch.launch(*given, **CONSTANTS))
    assert len(asked) == 3  # the aligned one once
    assert type(values) is Elsewhere or found[0].function != aligned[0].function


def test_the_device_of_the_tensors_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found, current, elsewhere = [], [0], VALUES.as_subclass(Elsewhere)

    @contextmanager
    def device_of(like: Tensor) -> Iterator[None]:
        found.append(like)
        before, current[0] = current[0], like.get_device()
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    launched(values=elsewhere)
    launched(values=elsewhere)
    assert len(found) == 2 and all(like is elsewhere for like in found) and current == [0]
    current[0] = elsewhere.get_device()
    launched(values=elsewhere)
    assert len(found) == 2


@pytest.mark.parametrize("grad", [False, True])
def test_a_call_of_other_tensors_is_not_replayed(grad: bool) -> None:
    layer = pyg.TransformerConv(*host.heads()).requires_grad_(grad)
    accelerate(layer)
    x, edges = torch.randn(host.NODES, host.IN), host.EDGE_INDEX
    for _ in range(4):
        before = GPU.seen(lambda: layer(x, edges))
    with pytest.raises(IndexError, match="edge_index"):
        layer(x[:9], edges)
    layer.double()
    after = GPU.seen(lambda: layer(x.double(), edges))
    assert layer(x.double(), edges).dtype == torch.float64
    assert after[0].function != before[0].function


@pytest.mark.parametrize("place", ["launch_enter_hook", "launch_exit_hook"])
def test_hooks_see_every_launch(place: str, asked: list[str]) -> None:
    launched()
    seen: list[str] = []
    hooks = getattr(knobs.runtime, place)

    def hook(about: Any) -> None:
        seen.append(about.get()["name"])

    hooks.add(hook)
    try:
        assert len(launched() + launched()) == 2
    finally:
        hooks.remove(hook)
    assert seen == ["by_bucket"] * 2
    asked.clear()
    launched()
    assert seen == ["by_bucket"] * 2 and asked == []


@pytest.mark.parametrize("compiled", [None, SimpleNamespace(run=print)])
def test_what_another_triton_compiles_is_not_remembered(compiled: Any) -> None:
    class Kernel:
        """Of the interpreter, which compiles nothing, or of a Triton with other names."""

        calls, fn = 0, None

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
            def run(*args: Any, **options: Any) -> Any:
                self.calls += 1
                return compiled

            return run

    kernel = Kernel()
    for _ in range(2):
        launch.launch(kernel, (1,), VALUES, VALUES)
    assert kernel.calls == 2 and launch._known == {}
