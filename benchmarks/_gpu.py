"""What the benchmarks on a GPU share: times by events, peak memory, limits of time, loss curves."""

from __future__ import annotations

import gc
import math
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _rows import ratios
from torch import Tensor, nn

from graphtheory.lab.bench.rows import Row

RESULTS = Path(__file__).parent / "results"
FLUSH = 256 * 2**20  # bytes, several times the last cache
FEWEST = 5  # rounds that no limit of time cuts short
CURVE, APART = 10, 1e-3  # steps of a loss curve, and how far apart two may be of the loss

Step = Callable[[], Any]
Job = tuple[str, Callable[[], Iterable[Row]]]


@dataclass(frozen=True)
class Where:
    """On what, and how thoroughly.

    Args:
        device: cuda or cpu.
        tiny: Sizes of a dry run.
        repeats: Rounds of a comparison; every round runs everything once.
        seconds: After which a comparison has no more rounds than `FEWEST`.
    """

    device: str = "cuda"
    tiny: bool = False
    repeats: int = 30
    seconds: float = 4.0

    @property
    def measures_memory(self) -> bool:
        return self.device == "cuda"

    def half(self) -> AbstractContextManager[Any]:
        """Autocast to bf16 on this device."""
        return torch.autocast(self.device, torch.bfloat16)

    def precision(self, name: str) -> AbstractContextManager[Any]:
        """What fp32 or bf16 computes in."""
        return self.half() if name == "bf16" else nullcontext()


class OutOfTimeError(BaseException):
    """A limit of time has passed; not an Exception, which would pass for the failure of a rival."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` in the block when so much time has passed; inf sets no limit."""
    if seconds <= 0:
        raise OutOfTimeError
    if math.isinf(seconds):
        yield
        return

    def ended(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ended)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def tidy() -> None:
    """Give back what a job held."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def attempted(
    jobs: Iterator[Job], seconds: float, failed: list[str], wanted: str = ""
) -> Iterator[list[Row]]:
    """Rows of job after job until the time is over; a failure is printed and noted.

    Only of jobs in whose names the regular expression `wanted` is found. What a job has measured
    before it fails, or before the time is over, is kept.
    """
    end = time.monotonic() + seconds
    for what, job in jobs:
        if not re.search(wanted, what):
            continue
        print(f"-- {what}", flush=True)
        rows: list[Row] = []
        is_over = False
        try:
            with within(end - time.monotonic()):
                for row in job():
                    rows.append(row)
        except OutOfTimeError:
            print(f"{what} and what follows left out: over {seconds:.0f} s", flush=True)
            is_over = True
        except Exception:  # the others are worth measuring all the same
            print(f"{what} failed:\n{traceback.format_exc(limit=-6)}", file=sys.stderr, flush=True)
            failed.append(what)
        finally:
            tidy()
        if rows:
            yield rows
        if is_over:
            return


def results_of(device: str) -> Path:
    """The file for rows of the device that torch sees."""
    seen = device == "cuda" and torch.cuda.is_available()
    name = torch.cuda.get_device_name() if seen else device
    return RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.csv"


def _by_events(work: Step) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _by_clock(work: Step) -> float:
    begin = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begin)


def milliseconds(
    steps: dict[str, Step], repeats: int, cold: bool = False, *, warmup: int = 3,
    device: str = "cuda", limit: float = math.inf,
) -> dict[str, list[float]]:  # fmt: skip
    """Times by events on the stream, of an idle device on; a round runs every step once.

    Args:
        steps: What to time.
        repeats: Rounds.
        cold: Whether the last cache is flushed before every step.
        warmup: Rounds before that are not timed.
        device: cuda, or cpu and its clock.
        limit: Seconds after which no further round begins, but for the first `FEWEST`.
    """
    take = _by_events if device == "cuda" else _by_clock
    flush = torch.empty(FLUSH if cold else 0, dtype=torch.uint8, device=device)
    times: dict[str, list[float]] = {name: [] for name in steps}
    started = time.perf_counter()
    for round_ in range(-warmup, repeats):
        if round_ >= FEWEST and time.perf_counter() - started > limit:
            break
        for name, work in steps.items():
            flush.fill_(round_ % 2)
            taken = take(work)
            if round_ >= 0:
                times[name].append(taken)
    return times


def extra_memory(work: Step) -> float:
    """MiB that a step holds on the GPU at its peak on top of what lies there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def runnable(
    what: str, makers: dict[str, Callable[[], Step]], ours: Callable[[str], bool],
    device: str = "cuda",
) -> dict[str, Step]:  # fmt: skip
    """The steps that run once; a rival's failure is printed, one of ours is raised."""
    steps = {}
    for name, make in makers.items():
        try:
            work = make()
            work()
            synchronize(device)
            steps[name] = work
        except Exception as error:  # foreign code fails in its own ways
            if ours(name):
                raise
            said = (str(error) or type(error).__name__).splitlines()[0]
            print(f"{what}: {name} left out: {said[:160]}", flush=True)
    return steps


def timed(
    what: str, steps: dict[str, Step], where: Where, **about: Any
) -> tuple[dict[str, list[float]], list[Row]]:
    """Times in ms round by round, and rows of them and of extra peak memory."""
    options: dict[str, Any] = {"device": where.device, "limit": where.seconds}
    times = milliseconds(steps, where.repeats, warmup=1 if where.tiny else 3, **options)
    rows = [Row.of(f"{what}: {name}", taken, "ms", **about) for name, taken in times.items()]
    if where.measures_memory:
        rows += [
            Row.of(f"{what}: memory of {name}", extra_memory(work), "MiB", **about)
            for name, work in steps.items()
            if "CUDA graph" not in name  # it has its memory already
        ]
    return times, rows


def compared(what: str, steps: dict[str, Step], where: Where, **about: Any) -> list[Row]:
    """Rows of time and memory, ours first, and how many times faster ours is, round by round."""
    times, rows = timed(what, steps, where, **about)
    ours, *rivals = times
    for name in rivals:
        faster = ratios(times[name], times[ours])
        rows.append(Row.of(f"{what}: times faster than {name}", faster, "1", **about))
    return rows


@dataclass(frozen=True)
class Recorded:
    """A step as one CUDA graph, which takes the host one launch; its results are overwritten.

    Attributes:
        work: The step. A graph reads and writes where its tensors lay, so they must live on.
        graph: What is replayed.
        results: What the step gave when it was recorded, at the place of each later result.
    """

    work: Step
    graph: torch.cuda.CUDAGraph
    results: Any

    def __call__(self) -> Any:
        self.graph.replay()
        return self.results


def recorded(work: Step) -> Recorded:
    """The same as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return Recorded(work, graph, results)


def as_graph(make: Callable[[], Step]) -> Step:
    """The step that is made, recorded as a graph."""
    return recorded(make())


def replayed(
    what: str, makers: dict[str, Callable[[], Step]], where: Where, **about: Any
) -> list[Row]:
    """Rows of the same steps as CUDA graphs, ours first; none on a CPU.

    A few small operations take the host longer to launch than the device to compute.
    """
    if where.device != "cuda":
        return []
    graphs = {f"{name}, CUDA graph": partial(as_graph, make) for name, make in makers.items()}
    ours = next(iter(graphs))
    return compared(what, runnable(what, graphs, ours.__eq__), where, **about)


def trainer(
    model: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer | None = None
) -> Step:
    """One training step, by Adam unless told, which gives its loss."""
    chosen = torch.optim.Adam(model.parameters(), lr=0.01) if optimizer is None else optimizer

    def step() -> Tensor:
        chosen.zero_grad()
        found = loss()
        found.backward()
        chosen.step()
        return found.detach()

    return step


def curve(make: Callable[[], Step], kept: dict[str, list[Tensor]], name: str) -> Step:
    """The step after the first `CURVE` ones, whose losses are kept."""
    step = make()
    kept[name] = [step() for _ in range(CURVE)]
    return step


def same_losses(what: str, losses: dict[str, list[Any]], **about: Any) -> list[Row]:
    """Rows of the largest difference to the losses of the first.

    Raises:
        AssertionError: A curve is not that of the first, by `APART` of the loss.
    """
    curves = {name: torch.tensor([float(v) for v in of]) for name, of in losses.items()}
    ours, *rivals = curves
    rows = []
    for name in rivals:
        apart = ((curves[name] - curves[ours]).abs() / curves[ours].abs()).max().item()
        assert apart <= APART, f"{what}: losses of {name} differ by {apart:.1e} of the loss"
        ends = {"first": f"{curves[ours][0]:.4f}", "last": f"{curves[ours][-1]:.4f}"}
        label = f"{what}: largest relative difference of {len(curves[ours])} losses to {name}"
        rows.append(Row.of(label, apart, "1", **ends, **about))
    return rows


def trained_alike(
    what: str, makers: dict[str, Callable[[], Step]], where: Where, **about: Any
) -> list[Row]:
    """Loss curves from the same weights, compared, then time and memory of the steps after them."""
    losses: dict[str, list[Tensor]] = {}
    ours = next(iter(makers))
    learning = {name: partial(curve, make, losses, name) for name, make in makers.items()}
    steps = runnable(what, learning, lambda name: name == ours, where.device)
    rows = same_losses(what, {name: losses[name] for name in steps}, **about)
    return rows + compared(what, steps, where, **about)
