"""Time and memory of each layer of a model, on the inputs that the layer gets in the model."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.benchmark import Timer

from graphtheory.ops.backends.cpu.memory import outputs_by_torch
from graphtheory.ops.backends.cpu.openmp import rest

_SECONDS, _RUNS = 0.2, 5  # each step is timed for this long, and this often, at least
_HEAD = ("layer", "class", "PyG ms", "our ms", "faster", "PyG MiB", "our MiB", "")
_CAPTION = """\
ms: median time of a forward and backward pass of the layer alone (forward alone without gradients)
MiB: peak memory that PyTorch allocates during the pass (GPU memory if the inputs are on a GPU)"""


class LayerCost(NamedTuple):
    """What a step of a layer, or of the model (named ""), costs before and after `accelerate`.

    `seconds` and `peak_bytes` have two entries; one if the layer was kept, and none if the inputs
    do not reach it, for the `reason`.
    """

    name: str
    kind: str
    seconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    reason: str = ""


def costs_of(model: nn.Module, names: Sequence[str], inputs: Any) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of a step of the model, under "", and of those layers that inputs reach.

    A layer runs alone, on what the model gave it in its second call. Random states stay.
    """
    given = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    args = () if isinstance(inputs, Mapping) else given
    kwargs = inputs if isinstance(inputs, Mapping) else {}
    calls: dict[str, list[Any]] = {"": [(args, kwargs)]}
    layers = dict(model.named_modules())

    def record(name: str, _: nn.Module, *call: Any) -> None:
        calls.setdefault(name, []).append(tree_map(_own, call))

    with torch.random.fork_rng(range(torch.cuda.device_count())):
        try:
            model(*args, **kwargs)  # lazy weights are made, sparse features met
        except Exception as error:
            kind, told = type(error).__name__, f"{type(model).__name__} on these inputs"
            raise ValueError(f"report: {told} raises {kind}: {error}") from error
        hooks = [
            layers[name].register_forward_pre_hook(partial(record, name), with_kwargs=True)
            for name in names
            if name
        ]
        model(*args, **kwargs)
        for hook in hooks:
            hook.remove()
        return {name: _cost(layers[name], of) for name, of in calls.items()}


def _own(x: Any) -> Any:
    """A leaf of its own in the place of a tensor with a gradient."""
    return x.detach().requires_grad_() if isinstance(x, Tensor) and x.requires_grad else x


def _cost(layer: nn.Module, calls: list[Any]) -> tuple[float, int]:
    own: Any = tree_map(_own, calls)
    tensors = [x for x in tree_leaves(own) if isinstance(x, Tensor)]

    def step() -> None:
        rest.look()  # as our loops do, so that threads wait alike in PyG's steps and in ours
        outs = tree_leaves([layer(*args, **kwargs) for args, kwargs in own])
        outs = [out for out in outs if isinstance(out, Tensor) and out.requires_grad]
        leaves = [x for x in (*tensors, *layer.parameters()) if x.requires_grad]
        if outs and leaves:
            torch.autograd.grad(outs, leaves, [torch.ones_like(t) for t in outs], allow_unused=True)

    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    once = timer.timeit(1).median  # after two untimed calls, of which the first may compile
    found = timer.blocked_autorange(min_run_time=max(_SECONDS, _RUNS * once))
    return found.median, _peak(step, any(x.is_cuda for x in tensors))


def _peak(step: Callable[[], None], on_gpu: bool) -> int:
    """The most bytes beyond those before; on a CPU by what each event of the profiler adds."""
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # of the profiler, which else writes to stderr
    with (
        outputs_by_torch(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen,
    ):
        step()
    spans = ((e.time_range, e.self_cpu_memory_usage) for e in seen.events() or ())
    changes = sorted((span.start if size > 0 else span.end, size) for span, size in spans)
    return max(accumulate((size for _, size in changes), initial=0))


def table(rows: Sequence[LayerCost]) -> str:
    """The rows as text, and what their numbers are."""
    cells: list[tuple[str, ...]] = [_HEAD]
    for name, kind, seconds, peak_bytes, reason in rows:
        numbers = [1e3 * s for s in seconds], [size / 2**20 for size in peak_bytes]
        ms, mib = (([f"{n:.3g}" for n in of] + ["-", "-"])[:2] for of in numbers)
        faster = f"{seconds[0] / seconds[1]:.1f} x" if len(seconds) == 2 else "-"
        cells.append((name or "(model)", kind, *ms, faster, *mib, reason))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return "\n".join([*lines, _CAPTION])
