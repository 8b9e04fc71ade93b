"""k-nearest attention on Triton without a GPU: interpreted, and compiled for two GPUs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.ops.backends.triton.harness import SHARED, Launches, assert_interpreted_tests_pass

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.timeout(400)  # interpreted, on a machine that may be busy
def test_interpreted_kernels_fulfil_the_definition() -> None:
    assert_interpreted_tests_pass("interpreted_topk.py")


def attention(tokens: int, dim: int, dtype: torch.dtype, bias: str, dropout: float) -> None:
    """What forward and backward of one block launch, a bias having a gradient."""
    from graphtheory.ops.backends.triton import topk

    heads, edges, blocks = 6, tokens * tokens, (1, tokens, tokens)
    x = torch.zeros(tokens, heads, dim, dtype=dtype)
    by_edge = torch.zeros(edges, heads, dtype=dtype) if bias == "edges" else None
    bucket = torch.zeros(edges, dtype=torch.uint8) if bias == "buckets" else None
    table = torch.zeros(20, heads) if bias == "buckets" else None
    parts = (by_edge, bucket, table, torch.tensor(1) if dropout else None)
    _, facts = topk.attention(x, x, x, *parts, blocks, 100, 1.0, dropout)
    given = (x, x, x, x, *parts, facts, blocks, bias != "none", 1.0, dropout)
    topk.attention_backward(*given)


# Tokens, features, type, bias, dropout, programs, bytes of shared memory, bytes of registers put in
# memory: NVIDIA's GPUs since 8.0 have 99 KiB, and the H100 227.
CASES = {
    "image": (197, 64, torch.float32, "buckets", 0.1, 4, SHARED, 16),
    "image in 16 bits": (197, 64, torch.bfloat16, "none", 0.0, 3, SHARED, 640),
    "long row": (512, 64, torch.float32, "none", 0.0, 3, 96 * 1024, 32),
    "longest row": (1024, 64, torch.bfloat16, "none", 0.0, 3, 64 * 1024, 128),
    "longest row in 32 bits": (1024, 64, torch.float32, "none", 0.0, 3, 192 * 1024, 128),
    "longest row, widest head": (1024, 128, torch.bfloat16, "edges", 0.0, 3, 64 * 1024, 2560),
}


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_compiles_and_fits_the_registers(
    name: str, capability: int, launches: Launches, tmp_path: Path
) -> None:
    *case, different, shared, spilled = CASES[name]
    attention(*case)
    assert len(launches.programs) == different, list(launches.programs)
    launches.assert_fits(capability, tmp_path, shared, spilled)
