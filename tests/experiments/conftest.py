import pytest

from graphtheory.experiments.spaces import SPACES, Space


@pytest.fixture
def small_space(monkeypatch: pytest.MonkeyPatch) -> Space:
    """What a search on the karate club may choose from here; a few epochs, two splits."""
    space = Space(
        epochs=3,
        patience=3,
        search_seeds=2,
        shared={"residual": (True, False), "hidden": (4, 8), "lr": (0.01, 0.1), "layers": (1, 2)},
        extra={"gt": {"heads": (1, 2), "bias_lr": (None, 0.05)}},
    )
    monkeypatch.setitem(SPACES, "karate", space)
    return space
