"""Figure 6.5: the error over the share of neurons that are removed."""

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench.rows import Row, percent_spread
from graphtheory.lab.train.contract import check_each
from graphtheory.papers.figure import Figure, Verdict, verdict_of
from graphtheory.papers.grid import Measured
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, Errors, quick, tested
from graphtheory.papers.icl.figures_mechanism import LARGE, large_neurons, neuron_rows
from graphtheory.papers.icl.picture import pruning_curves
from graphtheory.papers.icl.training import Learner, PromptTest, train, world
from graphtheory.papers.pivot import Measurements, Pivot, Shown, groups, where
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.patterns.draw import generator_of

RULES = ("smallest first", "random", "largest first")


def removal_order(rule: str, norms: Tensor, generator: Generator | None = None) -> Tensor:
    """Ids of neurons of these norms [..., m], the first one to be removed first, int64 [..., m].

    The rule is one of `RULES`; neurons of equal norm go in the order of their ids.

    Source: Li (2024), section 6.2.4.
    """
    if rule not in RULES:
        raise ValueError(f"rule: got {rule!r}, expected one of {', '.join(RULES)}")
    if rule == "random":
        return torch.rand(norms.shape, generator=generator).argsort(dim=-1)
    return norms.sort(dim=-1, descending=rule == "largest first", stable=True).indices


def kept_mask(order: Tensor, share: float) -> Tensor:
    """Which neurons stay when a share of them, rounded, is removed in that order, bool [..., m]."""
    check_each("0 to 1", lambda value: 0 <= value <= 1, share=share)
    removed = order[..., : round(share * order.size(-1))]
    return torch.ones(order.shape, dtype=torch.bool).scatter(-1, removed, False)


@torch.no_grad()
def pruned(model: ShallowAttention, kept: Tensor) -> ShallowAttention:
    """A copy of T networks without the neurons that are not kept, bool [T, m].

    Their rows of W_O are 0, and so are they, behind a ReLU and without a bias.
    """
    out = deepcopy(model)
    out.W_O.mul_(kept[..., None])
    return out


BINS = 20  # of neurons in the order of their norms
_NOISE = 5e-4  # more errors than these are a loss


@dataclass(frozen=True)
class Pruned(Errors):
    """Learners that are tested without some of their neurons."""

    rules: tuple[str, ...] = RULES
    # shares of neurons that are removed
    rates: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def pruned_errors(grid: Pruned, learner: Learner) -> list[Measured]:
    """Rows of kind "norm" (by rank) and "error" (of each rule, rate, test and network)."""
    given = world(learner.relevant, grid.first)
    model = train(learner, given, grid.seeds, grid.first)
    norms = neuron_rows(model).norm(dim=2)
    rows = by_rank(learner.width, norms, grid.first)
    for rule in grid.rules:
        generator = generator_of(grid.first, 65)
        order = removal_order(rule, norms, generator)
        for rate in grid.rates:
            fewer = pruned(model, kept_mask(order, rate))
            for test in grid.tests:
                about = {
                    "kind": "error", "width": learner.width, "rule": rule, "rate": rate,
                    "alpha": test.alpha, "domain": test.domain,
                }  # fmt: skip
                rows += [about | row for row in tested(grid, fewer, given, test)]
    return rows


def by_rank(width: int, norms: Tensor, first: int) -> list[Measured]:
    """Mean norms of consecutive shares of the neurons, smallest first, and the share of small."""
    ranked = norms.sort(1).values
    small = (~large_neurons(norms)).float().mean(1)
    edges = torch.linspace(0, width, BINS + 1).round().long().tolist()
    return [
        {
            "kind": "norm", "width": width, "seed": first + t, "rank": (nth + 0.5) / BINS,
            "norm": float(ranked[t, low:high].mean()), "small": float(small[t]),
        }
        for t in range(len(norms))
        for nth, (low, high) in enumerate(pairwise(edges))
    ]  # fmt: skip


def small_shares(measured: Measurements) -> dict[int, list[float]]:
    """Width -> the share of small neurons of each network."""
    by_width = groups(where(measured, kind="norm"), "width").items()
    return {
        width: list({one["seed"]: one["small"] for one in mine}.values())
        for (width,), mine in by_width
    }


_SERIES = {"rule": "{rule}", "alpha": "alpha' = {alpha:g}"}


def _show(axis: str, grid: Pruned, measured: Measurements) -> Shown:
    shown = Pivot(
        "test error % out of domain over the share of neurons that are removed",
        {"error": "test error"}, {"width": "width", axis: axis}, "rate", heads=("", axis), words=2,
        begin=lambda one: [f"m = {one['width']}", _SERIES[axis].format(**one)],
        column="{:.0%}", cell=percent_spread, note="Mean ± standard deviation over networks.",
    )(grid, where(measured, kind="error"))  # fmt: skip
    order = ("width", "rate", axis)
    rows = [
        replace(row, parameters={key: row.parameters[key] for key in order}) for row in shown.rows
    ]
    rows += [
        Row.of("share of small neurons", shares, "1", width=width)
        for width, shares in small_shares(measured).items()
    ]
    return Shown(shown.table, rows)


def small_neurons(grid: Pruned, measured: Measurements) -> Verdict:
    """How many neurons are small."""
    shares = ", ".join(
        f"{100 * fmean(of):.0f} % at m = {width}" for width, of in small_shares(measured).items()
    )
    return Verdict(
        f"Small neurons (row of W_O W_V below {LARGE:g} of the largest): {shares}; claimed about "
        "15 %."
    )


def larger_shares_are_better(grid: Pruned, measured: Measurements) -> Verdict:
    """Figure 6.5b: a larger alpha' has no more errors, rate by rate."""
    by_rate = groups(where(measured, kind="error"), "rate").values()
    curves = [
        [fmean(one["error"] for one in of) for _, of in sorted(groups(mine, "alpha").items())]
        for mine in by_rate
    ]
    falling = sum(curve == sorted(curve, reverse=True) for curve in curves)
    return Verdict(
        f"A larger alpha' has no more errors at {falling} of {len(curves)} rates: "
        f"{verdict_of(falling == len(curves), grid.seeds)}."
    )


def small_ones_are_free(axis: str, grid: Pruned, measured: Measurements) -> Verdict:
    """The largest rate up to which nothing is lost, beside the share of small neurons."""
    told, small = [], small_shares(measured)
    for (width, _), mine in groups(where(measured, kind="error"), "width", axis).items():
        errors = {rate: [r["error"] for r in of] for (rate,), of in groups(mine, "rate").items()}
        free, last = free_rate(errors), max(errors)
        reaches = "as far as" if free >= fmean(small[width]) - 0.05 else "less far than"
        told.append(
            f"m = {width}, {_SERIES[axis].format(**mine[0])}: nothing is lost up to "
            f"{100 * free:g} %, {reaches} the small neurons reach; error "
            f"{100 * fmean(errors[0.0]):.2f} % unpruned, {100 * fmean(errors[last]):.2f} % with "
            f"{100 * last:g} % removed."
        )
    return Verdict(" ".join(told))


def free_rate(errors: dict[float, list[float]]) -> float:
    """The largest rate up to which the errors do not exceed the unpruned by two standard errors."""
    free = 0.0
    for rate, own in errors.items():
        gaps = [error - start for error, start in zip(own, errors[0.0], strict=True)]
        noise = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        if fmean(gaps) > max(2 * noise, _NOISE):
            break
        free = rate
    return free


def _picture(axis: str, grid: Pruned, measured: Measurements, title: str) -> Any:
    small = {width: fmean(of) for width, of in small_shares(measured).items()}
    rows, norms = (where(measured, kind=kind) for kind in ("error", "norm"))
    return pruning_curves(rows, norms, series=_SERIES[axis], title=title, small=small)


def _figure(figure: str, axis: str, summary: str, grid: Pruned, *claims: Any) -> Figure:
    told = (small_neurons, *claims, partial(small_ones_are_free, axis))
    show, picture = partial(_show, axis), partial(_picture, axis)
    summary = f"error over the share of neurons pruned, {summary}"
    few = quick(rates=slice(None, None, 3), prompts=300)
    return Figure(figure, summary, grid, pruned_errors, show, told, picture, few)


_LEARNER = replace(LEARNER, alpha=0.6)
FIGURES = (
    _figure(
        "fig-6-5a", "rule", "by magnitude and at random",
        Pruned((_LEARNER, replace(_LEARNER, width=60)), (PromptTest(0.6, 20, LARGEST_SUM),)),
    ),
    _figure(
        "fig-6-5b", "alpha", "for several alpha'",
        Pruned(
            (_LEARNER,),
            tuple(PromptTest(alpha, 20, LARGEST_SUM) for alpha in (0.4, 0.6, 0.8)),
            rules=RULES[:1],
        ),
        larger_shares_are_better,
    ),
)  # fmt: skip
