from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import nn

from graphtheory.ops import backend as dispatch
from graphtheory.ops import call as calls
from graphtheory.ops.call import AttentionCall


@pytest.fixture
def losses() -> Callable[..., list[float]]:
    """Losses of some steps of a network that is drawn anew, on 8 images of 4 classes."""
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 4

    def train(make: Callable[[], nn.Module], side: int = 32, steps: int = 12) -> list[float]:
        drawn, model = torch.Generator().manual_seed(0), make()
        model.reset_parameters(drawn)  # type: ignore[operator]
        optimizer, found = torch.optim.AdamW(model.parameters(), 2e-3), []
        for _ in range(steps):
            out = model(images[..., :side, :side], generator=drawn)
            loss = nn.functional.cross_entropy(out, labels)
            optimizer.zero_grad()
            loss.backward()
            assert all(p.grad is not None for p in model.parameters())
            optimizer.step()
            found.append(loss.item())
        return found

    return train


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the backends of all calls of attention that follow."""
    found, choose = [], dispatch.choose

    def note(call: AttentionCall, name: str | None = None) -> dispatch.Backend:
        found.append(choose(call, name).name)
        return choose(call, name)

    monkeypatch.setattr(calls, "choose", note)
    attention = import_module("graphtheory.ops.attention")
    monkeypatch.setattr(attention, "known", lambda *args: (None, None))  # what ran such a call
    return found
