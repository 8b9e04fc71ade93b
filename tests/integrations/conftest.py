import copy
from typing import Any

import pytest
from torch import nn

from graphtheory import accelerate
from graphtheory.nn.conv.on_core import OnCore


@pytest.fixture(autouse=True)
def few_new_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers sort edges of any number at the first call: what they compute is to be tested."""
    monkeypatch.setattr(OnCore, "_is_first", lambda *_, **__: False)


def swapped(before: nn.Module) -> Any:
    """A copy after `accelerate`, with the same parameters."""
    after = copy.deepcopy(before)
    report = accelerate(after)
    assert report.swapped and not report.kept, str(report)
    return after
