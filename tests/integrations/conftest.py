import pytest

from graphtheory.nn.conv.on_core import OnCore


@pytest.fixture(autouse=True)
def few_new_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers sort edges of any number at the first call: what they compute is to be tested."""
    monkeypatch.setattr(OnCore, "_is_first", lambda *_, **__: False)
