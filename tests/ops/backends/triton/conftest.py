"""Triton decides when it is imported whether it interprets, so that its kernels' tests on the CPU
have a process of their own, which `harness.py` starts."""

import os
from pathlib import Path

import pytest

from tests.ops.backends.triton.harness import Launches

INTERPRETED = ["interpreted.py", "interpreted_topk.py"]
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else INTERPRETED


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launches:
    """Nothing runs; the launching side is asked what it would run."""
    from graphtheory.ops.backends.triton import launch, score, topk

    found = Launches()
    for module in (launch, score, topk):
        monkeypatch.setattr(module, "launch", found)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return found
