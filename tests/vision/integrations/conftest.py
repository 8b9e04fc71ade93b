import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "tokens.py"


@pytest.fixture(scope="session")
def zoo() -> ModuleType:
    """Small models of transformers, those of the table of docs/transformers.md."""
    spec = importlib.util.spec_from_file_location("tokens", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(model: nn.Module, spread: float = 0.3) -> Any:
    """The model in evaluation mode, every weight moved away from what the constructor gave."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=draw))
    return model.eval()


def pixels(height: int, width: int | None = None, count: int = 2) -> Tensor:
    """Images of so many rows and columns."""
    size = (count, 3, height, height if width is None else width)
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Asserts that a model has the same weights afterwards."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def refused(load: Any, model: nn.Module, state: dict[str, Tensor], *changes: Any) -> None:
    """Asserts that states with other tensors, or without those that are None, are refused."""
    with unchanged(model):
        for change, message in changes:
            changed = {n: t for n, t in (state | change).items() if t is not None}
            with pytest.raises(ValueError, match=message):
                load(model, changed)
