"""Recorded steps: what a pretended GPU is told, what makes a record stale, and the steps taken."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW

import graphtheory
from graphtheory import Neighborhood
from graphtheory.nn import SPDTransformerConv
from graphtheory.recording import Recording, recorded

X, Y = torch.randn(6, 3), torch.randn(6, 1)


class Card:
    """Stands for `torch.cuda`: what is launched while it records runs at each replay."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.failure: Exception | None = None

    def device_of(self, tensor: Tensor) -> Any:
        return nullcontext()

    def current_stream(self) -> Card:
        return self

    def Stream(self) -> Card:
        return self

    def wait_stream(self, other: Card) -> None:
        self.told.append("wait")

    @contextmanager
    def stream(self, which: Card) -> Iterator[None]:
        self.told.append("eager")
        yield

    def CUDAGraph(self) -> Card:
        return self

    @contextmanager
    def graph(self, which: Card) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        self.told.append("record")
        yield

    def replay(self) -> None:
        self.told.append("replay")

    @property
    def steps(self) -> list[str]:
        """What was told, without streams that wait."""
        told = [word for word in self.told if word != "wait"]
        self.told.clear()
        return told


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """A pretended GPU that all tensors lie on, and that computes when it replays."""
    card = Card()
    record = Recording._record

    def recording(self: Recording, inputs: tuple[Any, ...]) -> Any:
        """Nothing happens while a GPU records."""
        run, found = self._run, torch.zeros(())
        self._run = lambda *inputs: found
        try:
            graph, _ = record(self, inputs)
        finally:
            self._run = run

        class Graph:
            def replay(self) -> None:
                graph.replay()
                found.copy_(run(*inputs))

        return Graph(), found

    for name in ("device_of", "current_stream", "Stream", "stream", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(card, name))
    monkeypatch.setattr(Tensor, "is_cuda", True)
    monkeypatch.setattr(Recording, "_record", recording)
    return card


def case(kind: Any = Adam, **options: Any) -> tuple[nn.Module, Any, Callable[..., Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = kind(model.parameters(), lr=0.1, **options)
    return model, optimizer, lambda: (model(X) - Y).square().mean()


def by_hand(steps: int, kind: Any, **options: Any) -> tuple[list[float], list[Tensor]]:
    model, optimizer, loss = case(kind, **options)
    losses = []
    for k in range(steps):
        torch.manual_seed(k)
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("on_card", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(Adam, {"fused": True}), (AdamW, {"fused": True}), (SGD, {"momentum": 0.9})],
)
def test_steps_are_those_of_a_loop_by_hand(
    kind: Any, options: dict[str, Any], on_card: bool, request: pytest.FixtureRequest
) -> None:
    expected, wanted = by_hand(7, kind, **options)
    card = request.getfixturevalue("card") if on_card else None
    model, optimizer, loss = case(kind, **options)
    step = graphtheory.recorded(loss, optimizer)
    losses = []
    for k in range(7):
        torch.manual_seed(k)
        losses.append(step())
    assert [float(found) for found in losses] == expected
    assert not any(found.requires_grad for found in losses)
    assert all(map(torch.equal, model.parameters(), wanted))
    if card is not None:
        assert card.steps == ["eager"] * 3 + ["record"] + ["replay"] * 4


def test_an_optimizer_that_took_steps_counts_on_the_card(card: Card) -> None:
    model, optimizer, loss = case(foreach=True)
    loss().backward()
    optimizer.step()
    before = next(iter(optimizer.state.values()))["step"]
    optimizer.state[model[0].weight]["step"] = 1
    recorded(loss, optimizer)()
    group = optimizer.param_groups[0]
    assert (group["capturable"], group["fused"], group["foreach"]) == (True, True, False)
    counts = [state["step"] for state in optimizer.state.values()]
    assert float(before) == 2 or counts[0].dtype == torch.float32
    assert [float(count) for count in counts] == [2.0] * 4
    assert all(isinstance(count, Tensor) and count.device == X.device for count in counts)


def other_lr(model: Any, optimizer: Any, given: list[Any]) -> None:
    optimizer.param_groups[0]["lr"] = 0.2


def loaded(model: Any, optimizer: Any, given: list[Any]) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def evaluating(model: Any, optimizer: Any, given: list[Any]) -> None:
    model[1].eval()


def other_data(model: Any, optimizer: Any, given: list[Any]) -> None:
    model[0].weight.data = model[0].weight.data.clone()


def frozen(model: Any, optimizer: Any, given: list[Any]) -> None:
    model[0].weight.requires_grad_(False)


def other_input(model: Any, optimizer: Any, given: list[Any]) -> None:
    given[0] = X.clone()


def other_ids(model: Any, optimizer: Any, given: list[Any]) -> None:
    given[1][0] = 2


def same_ids_elsewhere(model: Any, optimizer: Any, given: list[Any]) -> None:
    given[1] = given[1].clone()


CHANGES = [
    other_lr, loaded, evaluating, other_data, frozen, other_input, other_ids, same_ids_elsewhere
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_after_a_change_steps_are_launched_and_recorded_again(
    card: Card, change: Callable[[Any, Any, list[Any]], None]
) -> None:
    model, optimizer, _ = case()
    given = [X, torch.tensor([0, 1])]
    step = recorded(lambda x, rows: model(x)[rows].square().mean(), optimizer)
    for _ in range(5):
        step(*given)
    assert card.steps[-1] == "replay"
    change(model, optimizer, given)
    for _ in range(5):
        step(*given)
    assert card.steps == ["eager"] * 3 + ["record", "replay", "replay"]


def test_new_values_in_the_same_place_are_replayed(card: Card) -> None:
    model, optimizer, _ = case()
    x = X.clone()
    step = recorded(lambda: model(x).square().mean(), optimizer)
    for _ in range(5):
        step()
    x.zero_()
    with torch.no_grad():
        model[0].weight.zero_()
    card.steps  # noqa: B018  forgets them
    step()
    assert card.steps == ["replay"]


FACTOR = 1.0


def test_what_a_loss_reads_by_name_is_compared(card: Card) -> None:
    global FACTOR
    model, optimizer, _ = case()

    class Loss:
        def of(self, x: Tensor, power: int) -> Tensor:
            return FACTOR * model(x).pow(power).mean()

    step = recorded(partial(Loss().of, power=2), optimizer)
    for _ in range(4):
        step(X)
    FACTOR = 2.0
    model[1].eval()
    step(X)
    assert card.steps == ["eager"] * 3 + ["record", "replay", "eager"]


@pytest.mark.parametrize("kind", [Adagrad, Adam])
def test_what_cannot_be_recorded_is_launched_after_one_warning(
    card: Card, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, wanted = by_hand(6, kind, **({"fused": True} if kind is Adam else {}))
    model, optimizer, loss = case(kind)
    if kind is Adam:
        card.failure = RuntimeError("operation not permitted when stream is capturing")
    step = recorded(loss, optimizer)
    said = "not permitted" if kind is Adam else "Adagrad has no option 'capturable'"
    losses = []
    for k in range(6):
        torch.manual_seed(k)
        with pytest.warns(UserWarning, match=said) if k == 3 else nullcontext():
            losses.append(float(step()))
    assert losses == expected and card.steps == ["eager"] * 3
    assert all(map(torch.equal, model.parameters(), wanted))


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="optimizer: got Linear, expected an optimizer of torch"):
        recorded(lambda: X.sum(), nn.Linear(1, 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_on_a_gpu_replayed_steps_are_the_launched_ones() -> None:
    edges = torch.randint(50, (2, 400), generator=torch.Generator().manual_seed(0))
    nb, x = Neighborhood.from_edge_index(edges.cuda(), 50), torch.ones(50, 16, device="cuda")
    hops = torch.randint(5, (400,), device="cuda").byte()
    results = []
    for record in (True, False):
        torch.manual_seed(0)
        model = SPDTransformerConv(16, 8, heads=2, num_buckets=5, dropout=0.5).cuda()
        optimizer = Adam(model.parameters(), lr=0.01, fused=True, capturable=True)
        step = recorded(lambda m=model: m(x, nb, distance=hops).square().mean(), optimizer)
        if not record:
            step._fails = True  # type: ignore[attr-defined]
        for epoch in range(8):
            torch.manual_seed(epoch)
            found = step()
        assert (step._graph is not None) == record  # type: ignore[attr-defined]
        results.append([found, *model.parameters()])
    assert all(map(torch.equal, *results))
