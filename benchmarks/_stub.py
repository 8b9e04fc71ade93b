"""A pretended GPU that computes nothing, for what the host does in a step on a real one.

Triton's own runtime, launcher and compiler run on a driver whose functions do nothing (`_stub.c`).
Tensors in main memory are taken for those of a GPU: they say that they are not on the CPU, and
`triton_csr` has no objection to them. What asks for `device.type` sees a CPU all the same: numpy
sorts edges. Results of our kernels are whatever lay in memory. A process that pretends cannot go
back.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

_TYPES = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
}
_SEEN = ctypes.CFUNCTYPE(
    None, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_void_p)
)
CAPABILITY = 9, 0
_ASKED = ("item", "tolist", "nonzero", "__bool__", "__int__", "__float__", "__index__")


def _compiler() -> str | None:
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def lacking() -> str | None:
    """What keeps this machine from pretending; None where nothing does."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if not sys.platform.startswith("linux") or _compiler() is None:
        return "it takes Linux and a C compiler, gcc or clang"
    if torch.cuda.is_available():
        return "this machine has a GPU, which gpu.py measures"
    return None


class Launch(NamedTuple):
    """What the driver was given: grid, threads and shared memory, then arguments by name."""

    kernel: str
    function: int  # the same for the same machine code
    sizes: tuple[int, ...]
    args: dict[str, float]


@dataclass
class Driver:
    """The driver of the pretended GPU."""

    library: ctypes.CDLL
    sources: dict[int, Any] = field(default_factory=dict)  # by function
    _built: list[Any] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """How many launches there were so far."""
        return ctypes.c_long.in_dll(self.library, "launches").value

    def seen(self, step: Callable[[], object]) -> list[Launch]:
        """The launches of a step."""
        found: list[Launch] = []

        def see(function: int, sizes: Any, params: Any) -> None:
            source, at = self.sources[function], 0
            args = {}
            for name, kind in source.signature.items():
                if kind != "constexpr":
                    kind = ctypes.c_uint64 if kind[0] == "*" else _TYPES[kind]
                    args[name] = kind.from_address(params[at]).value
                    at += 1
            found.append(Launch(source.fn.__name__, function, tuple(sizes[:7]), args))

        callback, place = _SEEN(see), ctypes.c_void_p.in_dll(self.library, "seen")
        place.value = ctypes.cast(callback, ctypes.c_void_p).value
        try:
            step()
        finally:
            place.value = None
        return found

    def watch(self, triton_driver: Any) -> None:
        """Learn of each function which source it was made of."""
        make, utils = triton_driver.launcher_cls, triton_driver.utils
        load = utils.load_binary

        def launcher(source: Any, metadata: Any) -> Any:
            self._built.append(source)
            return make(source, metadata)

        def loaded(*given: Any) -> Any:
            found = load(*given)
            self.sources[found[1]] = self._built.pop()
            return found

        triton_driver.launcher_cls, utils.load_binary = launcher, loaded


def _picks(given: Any) -> bool:
    """Whether an index is a mask, whose entries have to be counted."""
    indices = given if isinstance(given, tuple) else (given,)
    return any(isinstance(k, torch.Tensor) and k.dtype is torch.bool for k in indices)


def waits(step: Callable[[], object]) -> list[str]:
    """What a step calls that waits for a GPU, as often as it waits there."""
    found: list[str] = []

    def noted(real: Callable[..., Any], times: Callable[..., int]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            found.extend([real.__name__] * times(*args, **options))
            return real(*args, **options)

        return call

    with ExitStack() as patches:
        for place, name, times in (
            *((torch.Tensor, name, lambda *_, **__: 1) for name in _ASKED),
            (torch.Tensor, "__getitem__", lambda _, given: int(_picks(given))),
            (torch, "bincount", lambda *_, **__: 2),  # the smallest and the largest
            (torch, "nonzero", lambda *_, **__: 1),
            (torch, "repeat_interleave", lambda *_, output_size=None, **__: output_size is None),
        ):
            patches.enter_context(patch.object(place, name, noted(getattr(place, name), times)))
        step()
    return found


def _library(folder: str) -> ctypes.CDLL:
    """The driver, built and loaded under the name by which Triton's launcher finds it."""
    path, source = Path(folder) / "libcuda.so.1", Path(__file__).with_suffix(".c")
    flags = ["-O1", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    subprocess.run([_compiler(), *flags, "-o", path, source], check=True)
    path.with_suffix("").symlink_to(path.name)  # what a linker looks for
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _torch_with_a_gpu() -> None:
    """Answer what torch and Triton ask at every launch, in as many Python frames as on a GPU."""
    torch.cuda._initialized, torch.cuda._is_in_bad_fork = True, bool
    torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = int
    torch._C._cuda_getDevice = partial(int, -1)  # where tensors of a CPU are
    torch._C._cuda_getCurrentRawStream = defaultdict(int).__getitem__
    torch.cuda.get_device_capability = lambda device=None: CAPABILITY
    found = SimpleNamespace(shared_memory_per_block_optin=227 * 1024)
    torch.cuda.get_device_properties = lambda device=None: found
    torch.Tensor.is_cpu = False  # `device` stays: tensors are made on it


def _with_rows(launch: Callable[..., None]) -> Callable[..., None]:
    """Launches of `by_rank`; torch reads what it writes, here rows of the first edges of a size."""
    known: dict[Any, Any] = {}

    def run(
        kernel: Any, grid: Any, like: Any, edges: Any, room: Any, *args: Any, **more: Any
    ) -> None:
        from graphtheory.graph.csr import sorted_rows

        launch(kernel, grid, like, edges, room, *args, **more)
        *made, given, _, num_src, num_dst = args
        key = edges.shape, args[6:]
        if key not in known:
            rows, turned, _ = sorted_rows(edges, num_src, num_dst, made[3] is not None, None)
            for one, wanted in zip(made, [*rows, *turned], strict=False):
                one.copy_(wanted)
            room[1] = (edges[0, :given] == edges[1, :given]).sum()
            room[2:4] = torch.stack([t.diff().max() for t in (rows[0], (turned or rows)[0])])
            known[key] = room.clone()
        room.copy_(known[key])

    return run


def pretend() -> Driver:
    """Take this machine for one with a GPU from now on."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(_library(folder))
        _torch_with_a_gpu()
        import triton
        from triton.backends.nvidia.driver import CudaDriver

        triton.knobs.nvidia.libcuda_path = folder
        ours = CudaDriver()
    driver.watch(ours)
    triton.runtime.driver.set_active(ours)

    from graphtheory.ops.backends import triton_csr

    no_objections: Any = lambda device: []  # noqa: E731
    triton_csr.triton_objections.__code__ = no_objections.__code__  # others hold the function
    from graphtheory.ops.backends.triton import ranks

    ranks.launch = _with_rows(ranks.launch)
    return driver
