"""Triton's kernels without a GPU: interpreted against the definition, and compiled for two GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

HERE = Path(__file__).parent
NAMES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
}  # fmt: skip


IN_PARTS = "every_bin or every_type"  # so that none takes long on a busy machine


@pytest.mark.timeout(400)  # interpreted, on a machine that may be busy
@pytest.mark.parametrize(
    "which", [IN_PARTS, f"attention and not ({IN_PARTS})", f"not attention and not ({IN_PARTS})"]
)
def test_interpreted_kernels_fulfil_the_definition(which: str) -> None:
    command = [sys.executable, "-m", "pytest", str(HERE / "interpreted_triton.py"), "-k", which]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run(
        command + options, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert "passed" in run.stdout and "skipped" not in run.stdout


class Launches:
    """Collects what would be launched, each different program once."""

    def __init__(self) -> None:
        self.programs: dict[str, tuple[Any, dict[str, str], dict[str, Any], int]] = {}

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], like: Tensor, *args: Any,
        warps: int = 4, **constants: Any,
    ) -> None:  # fmt: skip
        from graphtheory.ops.backends import _triton_launch

        constants["ACC"] = _triton_launch._TYPES[constants["ACC"]]
        signature = {}
        for parameter, arg in zip(kernel.params, args, strict=False):
            if isinstance(arg, Tensor):
                signature[parameter.name] = f"*{NAMES[arg.dtype]}"
            elif arg is None:
                constants[parameter.name] = None
            else:
                signature[parameter.name] = parameter.annotation_type or "i32"
        signature |= dict.fromkeys(constants, "constexpr")
        signature = {name: signature[name] for name in kernel.arg_names}
        name = f"{kernel.fn.__name__} {signature} {constants} {warps}"
        self.programs[name] = kernel, signature, constants, warps

    def compile(self, capability: int) -> Iterator[tuple[str, Any]]:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from graphtheory.ops.backends import _triton_launch

        for name, (kernel, signature, constants, warps) in self.programs.items():
            pointers = [i for i, kind in enumerate(signature.values()) if kind[0] == "*"]
            aligned = {(i,): [["tt.divisibility", 16]] for i in pointers}
            source = ASTSource(kernel, signature, constants, aligned)
            target = GPUTarget("cuda", capability, 32)
            options = {"num_warps": warps} | _triton_launch.OPTIONS
            yield name, triton.compile(source, target=target, options=options)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launches:
    """Nothing runs; the launching side is asked what it would run."""
    from graphtheory.ops.backends import _triton_bins, _triton_launch, triton_csr

    found = Launches()
    monkeypatch.setattr(_triton_launch, "launch", found)
    monkeypatch.setattr(triton_csr, "launch", found)
    monkeypatch.setattr(_triton_bins, "CHUNK", 20)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return found


def graph(degrees: list[int]) -> Neighborhood:
    """Rows of these lengths, and columns as well, so that both directions have every bin."""
    nb = Neighborhood.from_edge_index(
        torch.stack([torch.zeros(sum(degrees)).long(), torch.arange(len(degrees)).repeat_interleave(
            torch.tensor(degrees))]), len(degrees),
    )  # fmt: skip
    nb.adopt_transpose(nb.indptr, nb.indices, torch.arange(nb.num_edges))
    return nb


def parts(nb: Neighborhood) -> list[Tensor]:
    t = nb.transpose()
    assert t.perm is not None
    return [nb.indptr, nb.indices, t.indptr, t.indices, t.perm]


def attention(nb: Neighborhood, dtype: torch.dtype, bucketed: bool, dropout: float) -> None:
    from graphtheory.ops.backends import triton_csr

    heads, dim = 8, 16
    x = torch.zeros(nb.num_dst, heads, dim, dtype=dtype)
    bucket = table = bias = None
    if bucketed:
        bucket, table = torch.zeros(nb.num_edges).to(torch.uint8), torch.zeros(20, heads)
    else:
        bias = torch.zeros(nb.num_edges, heads)
    seed = torch.tensor(1) if dropout else None
    structure = parts(nb)
    _, norm = triton_csr.attention(*structure[:2], x, x, x, bias, bucket, table, 1.0, dropout, seed)
    triton_csr.attention_backward(
        *structure, x, x, x, x, norm, bucket, 20 if bucketed else 0, 1.0, dropout, seed,
        out=x, bias=bias, table=table,
    )  # fmt: skip


def primitives(nb: Neighborhood, dtype: torch.dtype) -> None:
    from graphtheory.ops.backends import _triton_additive, triton_csr

    x = torch.zeros(nb.num_dst, 8, 16, dtype=dtype)
    logits = torch.zeros(nb.num_edges, 8, dtype=dtype)
    triton_csr.edge_dot(nb.indptr, nb.indices, x, x)
    triton_csr.aggregate(nb.indptr, nb.indices, logits, x)
    triton_csr.edge_softmax(nb.indptr, logits)
    triton_csr.edge_softmax_backward(nb.indptr, logits, logits)
    score = (x, x, x[0], torch.zeros(nb.num_edges, 0), torch.zeros(8, 0, 16), 0.2)
    _triton_additive.score(nb.indptr, nb.indices, *score)
    _triton_additive.score_backward(*parts(nb), logits, *score)


BINS = [3, 50]  # up to 8, more than a chunk
EQUAL = [16, 16]
CASES: dict[str, tuple[Callable[[], None], int]] = {
    "buckets": (lambda: attention(graph(BINS), torch.bfloat16, True, 0.0), 9),
    "equal rows": (lambda: attention(graph(EQUAL), torch.float32, True, 0.1), 4),
    "float64": (lambda: attention(graph([18, 17]), torch.float64, False, 0.1), 3),
    "primitives": (lambda: primitives(graph([70]), torch.float32), 8),
}


def stack(binary: bytes, folder: Path) -> int:
    """Bytes a thread keeps in memory for want of registers."""
    from triton import knobs

    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(usage.partition("STACK:")[2].split()[0])


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_compiles_and_fits_the_registers(
    name: str, capability: int, launches: Launches, tmp_path: Path
) -> None:
    run, different = CASES[name]
    run()
    assert len(launches.programs) == different, list(launches.programs)
    for program, compiled in launches.compile(capability):
        assert compiled.metadata.shared <= 48 * 1024, program
        assert stack(compiled.asm["cubin"], tmp_path) <= 16, program
