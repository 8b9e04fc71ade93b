"""What `gpu_models.py` times on tokens: images, prompts, projections; and timm's tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpt as prompts
import heads as projections
import torch
from _gpu import Job, Step, Where, as_graph, compared, runnable, timed, trainer
from _rows import ROOT, ratios
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from vision import OURS, SMALL, Size, assert_same, forward, networks, training

from graphtheory.lab.bench.rows import Row
from graphtheory.vision.models.stvit_swin import stvit_r_swin, stvit_r_swin_small
from graphtheory.vision.models.swin import swin, swin_small

BATCHES = (128, 32, 1)
GRAPH = ", CUDA graph"
TIMM = "tests/integrations/test_timm.py"
OF_TIMM = {
    "DeiT-S": "deit_small_patch16_224", "DeiT-B": "deit_base_patch16_224",
    "Swin-S": "swin_small_patch4_window7_224",
}  # fmt: skip


def _deits(name: str, tiny: bool) -> dict[str, nn.Module]:
    """Networks of DeiT's sizes, the plain one first; of DeiT-B those whose weights differ."""
    small = name == OURS
    found = networks(SMALL if tiny else Size() if small else Size(dim=768, heads=12))
    found = {key.replace(OURS, name): model for key, model in found.items()}
    return found if small else dict(list(found.items())[:3])


def _swins(tiny: bool) -> dict[str, nn.Module]:
    """Swin-S and STViT-R on it, without stochastic depth."""
    if tiny:
        plain = swin(8, (2, 2, 6, 2), (1, 2, 4, 8), window=4, drop_path=0.0)
        reduced = stvit_r_swin(8, 1, units=1, window=4, side=2, drop_path=0.0)
    else:
        plain, reduced = swin_small(drop_path=0.0), stvit_r_swin_small(drop_path=0.0)
    return {"Swin-S": plain, "STViT-R-Swin-S": reduced}


@lru_cache(maxsize=1)
def family(name: str, where: Where) -> dict[str, nn.Module]:
    """Networks on the device, the plain one of that name first."""
    torch.manual_seed(0)
    found = _swins(where.tiny) if name == "Swin-S" else _deits(name, where.tiny)
    if find_spec("timm") and not where.tiny:
        import timm

        found[f"{name} of timm"] = timm.create_model(OF_TIMM[name], num_classes=1000)
    return {key: model.to(where.device).eval() for key, model in found.items()}


def foreign(name: str) -> bool:
    return " of t" in name  # of timm, of transformers


def drawn(batch: int, where: Where) -> tuple[Tensor, Tensor]:
    """Draw a batch of images and their labels."""
    draw, pixels = torch.Generator().manual_seed(0), 32 if where.tiny else 224
    images = torch.randn(batch, 3, pixels, pixels, generator=draw)
    return images.to(where.device), torch.randint(1000, (batch,), generator=draw).to(where.device)


def passing(model: nn.Module, images: Tensor, labels: Tensor, where: Where) -> Step:
    """A forward pass without gradients."""

    def step() -> Tensor:
        with where.half():
            return forward(model, images)

    return step


def narrow(model: nn.Module, images: Tensor, labels: Tensor, where: Where) -> Step:
    """The same with weights in bf16, too, in place of autocast: nothing is converted."""
    model, images = deepcopy(model).bfloat16(), images.bfloat16()

    def step() -> Tensor:
        return forward(model, images)

    return step


def learning(model: nn.Module, images: Tensor, labels: Tensor, where: Where) -> Step:
    """A training step; a rate of 0 keeps the weights as they are."""

    def loss() -> Tensor:
        with where.half():
            return cross_entropy(model(images), labels)

    return trainer(model, loss, torch.optim.AdamW(model.parameters(), lr=0.0))


def image_rows(
    name: str, kind: Callable[..., Step], what: str, batch: int, where: Where
) -> list[Row]:
    """Time, memory and images a second of a family, and how many times as many as the first.

    A pass is also timed as a CUDA graph, which does not wait for the host.
    """
    models, (images, labels) = family(name, where), drawn(batch, where)
    if name == OURS and kind is passing:
        assert_same(models, images)
    makers = {key: partial(kind, model, images, labels, where) for key, model in models.items()}
    if kind is not learning and where.device == "cuda":
        makers |= {f"{key}{GRAPH}": partial(as_graph, make) for key, make in makers.items()}
    ours = {key for key in models if not foreign(key)}
    steps = runnable(what, makers, ours.__contains__, where.device)
    about = {"batch": batch, "pixels": images.size(-1), "precision": "bf16"}
    times, rows = timed(what, steps, where, **about)
    for key, taken in times.items():
        rate = [1e3 * batch / t for t in taken]
        rows.append(Row.of(f"{what}: images a second of {key}", rate, "1/s", **about))
        first = f"{name}{GRAPH}" if key.endswith(GRAPH) else name
        if key != first and first in times:
            faster = ratios(times[first], taken)
            rows.append(Row.of(f"{what}: {key} over {first}", faster, "1", **about))
    return rows


def trained_rows(name: str, what: str, batch: int, where: Where) -> list[Row]:
    """The same of a training step."""
    with training(family(name, where)):
        return image_rows(name, learning, what, batch, where)


def vision(where: Where) -> Iterator[Job]:
    """Every family at every batch; each family is made once."""
    batches = (2,) if where.tiny else BATCHES
    for name, batch in product((OURS, "Swin-S", "DeiT-B"), batches):
        what = f"{name} forward, batch {batch}"
        yield what, partial(image_rows, name, passing, what, batch, where)
        what = f"{name} forward, weights in bf16, batch {batch}"
        yield what, partial(image_rows, name, narrow, what, batch, where)
        what = f"{name} training step, batch {batch}"
        yield what, partial(trained_rows, name, what, batch, where)
    family.cache_clear()


def in_precision(work: Callable[..., Any], precision: str, where: Where, *given: Any) -> Step:
    """The work, forward and backward, under autocast or not."""

    def step() -> Any:
        with where.precision(precision):
            return work(*given)

    return step


def prompt_rows(
    about: dict[str, int], precision: str, ragged: bool, what: str, where: Where
) -> list[Row]:
    """A training step of the GPT-2-style model beside Hugging Face's."""
    tokens, dim = about["tokens"], about["dim"]
    models = [m.to(where.device) for m in prompts.pair(tokens, dim, about["depth"], about["heads"])]
    draw, mask = torch.Generator().manual_seed(1), None
    inputs = torch.randn(about["batch"], tokens, dim, generator=draw).to(where.device)
    if ragged:
        sizes = torch.randint(tokens // 3, tokens + 1, (len(inputs), 1), generator=draw)
        mask = (torch.arange(tokens) < sizes).to(where.device)
    prompts.assert_same(*models, inputs, mask)
    steps = {
        name: in_precision(prompts.step, precision, where, model, inputs, mask)
        for name, model in zip((prompts.OURS, prompts.THEIRS), models, strict=True)
    }
    return compared(what, steps, where, **about, precision=precision)


def gpt(where: Where) -> Iterator[Job]:
    """Prompts of in-context regression, of two lengths, whole and ragged, in two precisions."""
    sizes = {"batch": 64, "tokens": 41, "dim": 256, "depth": 6, "heads": 8}
    several = [sizes, sizes | {"tokens": 101, "depth": 12}]
    if where.tiny:
        several = [dict.fromkeys(sizes, 2) | {"tokens": 6, "dim": 8}]
    for about, precision, ragged in product(several, ("fp32", "bf16"), (False, True)):
        what = "GPT training step" + (", ragged prompts" if ragged else "") + f", {precision}"
        yield what, partial(prompt_rows, about, precision, ragged, what, where)


def head_rows(about: dict[str, int], precision: str, what: str, where: Where) -> list[Row]:
    """The projection head beside torch's encoder, forward and backward."""
    sizes = {name: about[name] for name in ("width", "depth", "heads", "hidden")}
    forms = (projections.OURS, projections.THEIRS)
    modules = {form: projections.module_of(form, **sizes).to(where.device) for form in forms}
    x, grad = (t.to(where.device) for t in projections.draw(about["batch"], about["width"]))
    found, wanted = (projections.step(module, x, grad) for module in modules.values())
    for a, b in zip(found, wanted, strict=True):  # order of sums differs between kernels
        error = float((a - b).abs().max() / b.abs().max())
        assert error < 2e-4, f"{what}: differs by {error:.1e} of the largest entry"
    steps = {
        form: in_precision(projections.step, precision, where, module, x, grad)
        for form, module in modules.items()
    }
    return compared(what, steps, where, **about, precision=precision)


def heads(where: Where) -> Iterator[Job]:
    """Five layers of width 128 on batches that are one sequence each."""
    sizes = {"width": 128, "depth": 5, "heads": 8, "hidden": 512}
    if where.tiny:
        sizes = {"width": 8, "depth": 2, "heads": 2, "hidden": 8}
    for batch, precision in product((16,) if where.tiny else (1024, 4096), ("fp32", "bf16")):
        what = f"head forward+backward, {precision}"
        yield what, partial(head_rows, {"batch": batch} | sizes, precision, what, where)


def tests_counted(tests: str, seconds: float) -> dict[str, int]:
    """How many tests passed, failed, were skipped; an error counts as failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", tests, "-q", f"--junitxml={report}"]
        done = subprocess.run(command, cwd=ROOT, check=False, timeout=seconds)
        if not report.exists():
            raise RuntimeError(f"pytest {tests} ended with {done.returncode} and left no report")
        suites = list(ElementTree.parse(report).iter("testsuite"))
    count = {name: sum(int(s.get(name, 0)) for s in suites)
             for name in ("tests", "failures", "errors", "skipped")}  # fmt: skip
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    return {"passed": passed, "failed": failed, "skipped": count["skipped"]}


def timm_rows() -> list[Row]:
    """The integration's tests, where timm is installed."""
    if find_spec("timm") is None:
        print(f"{TIMM} left out: timm is not installed")
        return []
    count = tests_counted(TIMM, 120)
    return [Row.of(f"tests of the timm integration, {name}", n, "1") for name, n in count.items()]


def timm(where: Where) -> Iterator[Job]:
    """The one job on models of timm."""
    yield TIMM, timm_rows
