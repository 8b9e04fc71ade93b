"""What tests of Triton's kernels share where there is no GPU: a process whose kernels are
interpreted, and a launching side whose programs are compiled instead of run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).parent
NAMES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16",
    torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
}  # fmt: skip
SHARED = 48 * 1024  # bytes that every GPU gives a program unasked


def assert_interpreted_tests_pass(file: str, *options: str) -> None:
    """Run a file of tests with interpreted kernels in a process of its own."""
    command = [sys.executable, "-m", "pytest", str(HERE / file), *options]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
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
        from graphtheory.ops.backends.triton import launch

        constants["ACC"] = launch._TYPES[constants["ACC"]]
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

    def assert_fits(
        self, capability: int, folder: Path, shared: int = SHARED, spilled: int = 16
    ) -> None:
        """Compile every program: no more than so many bytes shared, and of registers in memory."""
        for name, compiled in self._compile(capability):
            assert compiled.metadata.shared <= shared, name
            assert stack(compiled.asm["cubin"], folder) <= spilled, name

    def _compile(self, capability: int) -> Iterator[tuple[str, Any]]:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from graphtheory.ops.backends.triton import launch

        for name, (kernel, signature, constants, warps) in self.programs.items():
            pointers = [i for i, kind in enumerate(signature.values()) if kind[0] == "*"]
            aligned = {(i,): [["tt.divisibility", 16]] for i in pointers}
            source = ASTSource(kernel, signature, constants, aligned)
            target = GPUTarget("cuda", capability, 32)
            options = {"num_warps": warps} | launch.OPTIONS
            yield name, triton.compile(source, target=target, options=options)


def stack(binary: bytes, folder: Path) -> int:
    """Bytes a thread keeps in memory for want of registers."""
    from triton import knobs

    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(usage.partition("STACK:")[2].split()[0])
