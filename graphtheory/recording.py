"""Training steps that a GPU records once and then replays, for a loop of your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

_EAGER = 3  # calls that compile kernels, fill caches and make what an optimizer keeps
_SET = ("params", "capturable", "fused", "foreach")  # of an optimizer's options, set here


def recorded(loss: Callable[..., Tensor], optimizer: Optimizer) -> Callable[..., Tensor]:
    """Make a training step that a GPU records as a CUDA graph and then launches as a whole.

    A step is ``optimizer.zero_grad()``, the loss, its gradients and ``optimizer.step()``. Three are
    launched kernel by kernel, the fourth is recorded and replayed from then on. Random numbers are
    those of the default generator, whose seed may be set between steps. What `loss` is given or
    reads by name, parameters, train or eval, and the optimizer's options are compared in each call:
    after a change three steps are launched again (a step size that changes often is better a
    tensor). Other changes go unnoticed. A step that cannot be recorded, such as one that waits for
    the GPU, is launched as before, after one warning. On a CPU nothing is recorded.

    Args:
        loss: Function of the inputs of a step, and of modules and tensors that it reads by name.
        optimizer: Holds what learns; on a GPU it becomes `capturable`, and `fused` if it has both.

    Returns:
        A function of the inputs of `loss` that takes a step and returns the loss, detached.

    Raises:
        TypeError: If `optimizer` is not one of torch.

    Example:
        >>> model, x = torch.nn.Linear(2, 1), torch.ones(4, 2)
        >>> step = recorded(lambda: model(x).square().mean(), SGD(model.parameters(), lr=0.1))
        >>> float(step()) > float(step())
        True
    """
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer: got {kind}, expected an optimizer of torch")

    def step(*inputs: Any) -> Tensor:
        optimizer.zero_grad()
        found = loss(*inputs)
        found.backward()
        optimizer.step()
        return found.detach()

    return Recording(step, loss, optimizer)


class Recording:
    """What `run` launches on a GPU, recorded in the fourth call; `reads` holds what it reads."""

    def __init__(
        self, run: Callable[..., Tensor], reads: Any, optimizer: Optimizer | None = None
    ) -> None:
        self._run, self._reads, self._optimizer = run, reads, optimizer
        self._known, self._held = list[Any](), list[Any]()  # what was read, kept in memory
        self._calls, self._fails = 0, False
        self._graph: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def __call__(self, *inputs: Any) -> Tensor:
        held = [*inputs, *_read_by(self._reads)]
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        modules = [m for one in held if isinstance(one, nn.Module) for m in one.modules()]
        own = (t for m in modules for t in chain(m._parameters.values(), m._buffers.values()))
        tensors = [*(t for t in own if t is not None), *(p for g in groups for p in g["params"])]
        if self._fails or not tensors or not all(t.is_cuda for t in tensors):
            return self._run(*inputs)
        held += [v for g in groups for name, v in g.items() if name not in _SET]
        held.append(self._optimizer and self._optimizer.state)  # another one after a load
        known = [*map(_state, held), *(m.training for m in modules)]
        known += [(t.data_ptr(), t.requires_grad) for t in tensors]
        if known != self._known:
            self._known, self._held, self._calls, self._graph = known, held, 0, None
            if self._optimizer is not None:
                _prepare(self._optimizer)
        self._calls += 1
        with torch.cuda.device_of(tensors[0]):
            if self._calls <= _EAGER:  # on another stream, as torch asks for
                here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
                aside.wait_stream(here)
                with torch.cuda.stream(aside):
                    found = self._run(*inputs)
                here.wait_stream(aside)
                return found
            try:
                self._graph = self._graph or self._record(inputs)
            except Exception as error:  # torch raises many kinds for what cannot be recorded
                self._fails = True
                told = f"recorded: cannot be recorded, so kernels are launched: {error}"
                warnings.warn(told, stacklevel=2)
                return self._run(*inputs)
            self._graph[0].replay()
            return self._graph[1].clone()

    def _record(self, inputs: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        made, graph = self._optimizer, torch.cuda.CUDAGraph()
        if not isinstance(made, SGD | None) and "capturable" not in made.defaults:
            raise NotImplementedError(f"{type(made).__name__} has no option 'capturable'")
        with torch.cuda.graph(graph):
            return graph, self._run(*inputs)


def _prepare(optimizer: Optimizer) -> None:
    """Let an optimizer count its steps on the GPU."""
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
            group.update({"fused": True, "foreach": False} if "fused" in group else {})
        for p in group["params"]:
            if "step" in (state := optimizer.state.get(p, {})):
                state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(p.device)


def _state(value: Any) -> Any:
    """What stays the same while a recorded step may read a value as it was."""
    if isinstance(value, Tensor):
        free = value.is_floating_point() or value.is_inference()
        return id(value), value.data_ptr(), value.shape, None if free else value._version
    return value if isinstance(value, int | float | str) else id(value)


def _read_by(function: Any) -> Iterator[Any]:
    """What a function reads by name: its object, what it encloses, and globals."""
    if isinstance(function, partial):
        yield from (*function.args, *function.keywords.values(), *_read_by(function.func))
    yield function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    for cell in getattr(function, "__closure__", None) or ():
        yield cell.cell_contents
    if (code := getattr(function, "__code__", None)) is not None:
        yield from map(function.__globals__.get, code.co_names)
