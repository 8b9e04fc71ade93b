"""Figure 6.2: keys, queries, attention and neurons in the course of training."""

from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory.lab.bench.rows import Row, Table, mean_spread
from graphtheory.papers.figure import Figure, Verdict, verdict_of
from graphtheory.papers.grid import Measured
from graphtheory.papers.icl import training
from graphtheory.papers.icl.figures import LARGEST_SUM, LEARNER, Errors, quick
from graphtheory.papers.icl.picture import prompt_mechanism
from graphtheory.papers.icl.training import OUTSIDE, Learner, PromptTest, World
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.shallow import ShallowAttention


def mass_by_kind(attention: Tensor, pattern: Tensor, task: Tensor) -> dict[str, float]:
    """Mean attention on the contexts of each kind, and the share of contexts of that kind.

    Kinds: "same", with the query's relevant pattern; "rival", with the task's other decisive
    pattern; "other", with a pattern that decides nothing. Prompts without a context of the query's
    pattern are left out. Weights are [..., P, l], relevant patterns int64 [..., P, l + 1], the
    query's last, the task's decisive ones [..., P, 2].

    Returns:
        "same", "rival" and "other": attention, together 1; "uniform same", "uniform rival" and
        "uniform other": shares of the contexts.

    Source: Li (2024), corollary 6.4.3, whose left side is "same".
    """
    context, query = pattern[..., :-1], pattern[..., -1:]
    same = context == query
    rival = ((context[..., None] == task[..., None, :]).any(-1)) & ~same
    kinds = {"same": same, "rival": rival, "other": ~same & ~rival}
    there = same.any(-1).broadcast_to(attention.shape[:-1])
    if not bool(there.any()):
        raise ValueError("pattern: no prompt has a context of the query's pattern, expected one")
    found: dict[str, float] = {}
    for name, kind in kinds.items():
        kind = kind.broadcast_to(attention.shape)
        found[name] = float(torch.where(kind, attention, 0).sum(-1)[there].mean())
        found[f"uniform {name}"] = float(kind.float().mean(-1)[there].mean())
    return found


class Projection(NamedTuple):
    """Lengths of projected columns, averaged over them."""

    whole: float  # of W p
    along: float  # of the part of W p along the column's own direction
    across: float  # largest part of W p along another of the directions


def projection(weight: Tensor, columns: Tensor, directions: Tensor, own: Tensor) -> Projection:
    r"""How much of W p lies along the relevant pattern of p, for W_Q or W_K, [m_a, d].

    .. math:: \|W p\|, \quad |[\mu^\top, 0^\top] W p| / \|\mu\|

    Columns p are [N, d], directions the patterns [M, d_x] of any norm, d_x at most m_a; `own` says
    which of them is in each column, int64 [N].

    Source: Li (2024), proposition 6.4.1 and figure 6.2a.
    """
    dim = directions.size(1)
    if dim > weight.size(0):
        raise ValueError(f"directions: d_x = {dim}, expected at most m_a = {weight.size(0)}")
    image = columns @ weight.t()  # [N, m_a]
    unit = directions / directions.norm(dim=1, keepdim=True)
    parts = (image[:, :dim] @ unit.t()).abs()  # [N, M]
    along = parts.gather(1, own[:, None])
    others = parts.scatter(1, own[:, None], 0.0)
    return Projection(
        float(image.norm(dim=1).mean()), float(along.mean()), float(others.amax(1).mean())
    )


class Alignment(NamedTuple):
    """Length and direction of every neuron; zero rows have cosine 0."""

    input_norm: Tensor  # length of the first d_x entries of its row of W_O W_V
    input_cosine: Tensor  # cosine between these and the mean of the relevant patterns
    label_norm: Tensor  # length of the next d_y entries
    label_cosine: Tensor  # cosine between these and q where a > 0, -q where a < 0


def neuron_alignment(rows: Tensor, sign: Tensor, mean: Tensor, q: Tensor) -> Alignment:
    r"""How far neurons align with the mean pattern mu-bar [d_x] and q, the embedding of +1 [d_y].

    .. math:: r_{d_x} \bar\mu / (\|r_{d_x}\| \|\bar\mu\|), \quad
        r_{d_y} q_e / (\|r_{d_y}\| \|q_e\|)

    Rows are those of W_O W_V, [..., m, d_x + d_y]; of `a`, [..., m], only the sign matters.

    Source: Li (2024), proposition 6.4.5.
    """
    inputs, labels = rows.split((len(mean), len(q)), dim=-1)
    label_cosine = torch.cosine_similarity(labels, q.expand_as(labels), dim=-1)
    return Alignment(
        inputs.norm(dim=-1), torch.cosine_similarity(inputs, mean.expand_as(inputs), dim=-1),
        labels.norm(dim=-1), label_cosine * sign.sign(),
    )  # fmt: skip


LARGE = 0.25  # of the largest row of W_O W_V of a network: what counts as a large neuron
_SHOWN = 5  # neurons of each sign
_MASS = 0.95
_LOOKS = {
    "query whole": "length of W_Q p of the query",
    "query along": "of it along the query's pattern",
    "query across": "of it along another pattern, the largest",
    "key whole": "length of W_K p of the contexts",
    "key along": "of it along the context's pattern",
    "key across": "of it along another pattern, the largest",
    "same": "attention on contexts with the query's pattern",
    "uniform same": "share of these contexts",
    "error": "test error",
}
_NEURONS = {
    "large": f"share of large neurons (at least {LARGE:g} of the largest)",
    "input cosine": "their cosine with the mean pattern",
    "label cosine": "their cosine with ± q",
}


def neuron_rows(model: ShallowAttention) -> Tensor:
    """W_O W_V, [T, m, d]."""
    return (model.W_O @ model.W_V).detach()


def large_neurons(norms: Tensor) -> Tensor:
    """Which rows of W_O W_V are large beside the largest of their network, bool [T, m]."""
    return norms >= LARGE * norms.amax(1, keepdim=True)


@dataclass(frozen=True)
class Dynamics(Errors):
    """Networks that are looked at on the way."""

    prompts: int = 200
    every: int = 10  # steps between two looks


def looks(grid: Dynamics, learner: Learner) -> list[Measured]:
    """Rows of kind "look" (of each test), "neurons" (of each network), "neuron" (of some)."""
    given = training.world(learner.relevant, grid.first)
    rows: list[Measured] = []

    def watch(step: int, model: ShallowAttention) -> bool:
        if step % grid.every == 0 or step == learner.steps:
            found = _neurons(grid, model, given)
            for test in grid.tests:
                found += _look(grid, model, given, test)
            rows.extend({"step": step} | row for row in found)
        return False

    training.train(learner, given, grid.seeds, grid.first, watch)
    return rows


def _look(
    grid: Dynamics, model: ShallowAttention, given: World, test: PromptTest
) -> list[Measured]:
    source, rows = given.test(test), []
    asked = training.prompts_of(source, grid.seeds, grid.prompts, test.seed(grid.first))
    ((prompts, columns),) = asked
    found = training.icl_predict(model, columns)
    assert found.attention is not None and prompts.pattern is not None
    assert prompts.task is not None
    pattern = prompts.pattern.view(grid.seeds, grid.prompts, -1)
    task = prompts.task.view(grid.seeds, grid.prompts, 2)
    wrong = found.wrong(prompts.answer.view(grid.seeds, -1)).float().mean(1)
    parts = {"query": (model.W_Q, slice(-1, None)), "key": (model.W_K, slice(None, -1))}
    for t in range(grid.seeds):
        row: Measured = {"kind": "look", "domain": test.domain}
        row |= {"seed": grid.first + t, "error": float(wrong[t])}
        row |= mass_by_kind(found.attention[t], pattern[t], task[t])
        for name, (weight, place) in parts.items():
            lengths = projection(
                weight[t].detach(), columns[t, :, place].flatten(0, 1),
                source.patterns.relevant, pattern[t, :, place].flatten(),
            )  # fmt: skip
            row |= {f"{name} {part}": value for part, value in lengths._asdict().items()}
        rows.append(row)
    return rows


def _neurons(grid: Dynamics, model: ShallowAttention, given: World) -> list[Measured]:
    weights, sign = neuron_rows(model), model.a[:, 0]
    found = neuron_alignment(weights, sign, given.patterns.relevant.mean(0), given.labels[1])
    large = large_neurons(weights.norm(dim=2))
    rows: list[Measured] = [
        {
            "kind": "neurons", "seed": grid.first + t, "large": float(large[t].float().mean()),
            "input cosine": float(found.input_cosine[t][large[t]].mean()),
            "label cosine": float(found.label_cosine[t][large[t]].mean()),
        }
        for t in range(grid.seeds)
    ]  # fmt: skip
    for value in (1, -1):
        for neuron in (sign[0].sign() == value).nonzero()[:_SHOWN, 0].tolist():
            parts = {
                name.replace("_", " "): float(part[0, neuron])
                for name, part in found._asdict().items()
            }
            rows.append({"kind": "neuron", "neuron": neuron, "sign": value} | parts)
    return rows


def _ends(measured: Measurements) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """(domain or "", key) -> its values before and after training, one per network."""
    last = max(one["step"] for one in measured)
    out = {}
    for kind, names in (("look", _LOOKS), ("neurons", _NEURONS)):
        mine = [one | {"domain": one.get("domain", "")} for one in measured if one["kind"] == kind]
        for (domain,), own in groups(mine, "domain").items():
            for key in names:
                first, after = ([r[key] for r in own if r["step"] == at] for at in (0, last))
                out[domain, key] = first, after
    return out


def _show(grid: Dynamics, measured: Measurements) -> Shown:
    lines, rows = [], []
    steps = (0, max(one["step"] for one in measured))
    for (domain, key), cells in _ends(measured).items():
        name = (_LOOKS | _NEURONS)[key]
        lines.append([domain, name, *(mean_spread(cell, ".3f") for cell in cells)])
        about = {"domain": domain} if domain else {}
        rows += [
            Row.of(name, cell, "1", step=step, **about)
            for step, cell in zip(steps, cells, strict=True)
        ]
    table = Table(
        "before and after training", ["", "measure", *(f"after {step} steps" for step in steps)],
        lines, words=2, note="Mean ± standard deviation over networks.",
    )  # fmt: skip
    return Shown(table, rows)


def attends_to_its_pattern(grid: Dynamics, measured: Measurements) -> Verdict:
    """Corollary 6.4.3: nearly all attention is on contexts with the query's pattern."""
    told = []
    for (domain, key), (_, after) in _ends(measured).items():
        if key == "same":
            mass = fmean(after)
            told.append(
                f"Attention on the query's pattern {domain}: {mass:.3f}, claimed near 1: "
                f"{verdict_of(mass > _MASS, grid.seeds)}."
            )
    return Verdict(" ".join(told))


def lies_along_its_pattern(part: str, grid: Dynamics, measured: Measurements) -> Verdict:
    """Proposition 6.4.1, out of the domain as the figure: W p grows along the pattern of p."""
    ends = _ends(measured)
    along, whole = ([fmean(of) for of in ends[OUTSIDE, f"{part} {k}"]] for k in ("along", "whole"))
    first, last = (a / w for a, w in zip(along, whole, strict=True))
    grows = along[1] > along[0] and last > first
    return Verdict(
        f"Out of domain, {first:.2f} of the length of W p of a {part} lies along its pattern "
        f"before and {last:.2f} after training, {along[0]:.2f} and {along[1]:.2f} in length "
        f"(claimed: grows, and is nearly all): {'grows' if grows else 'does not grow'}."
    )


def neurons_read_patterns(grid: Dynamics, measured: Measurements) -> Verdict:
    """Proposition 6.4.5: large neurons align with the mean pattern and the label embedding."""
    ends = _ends(measured)
    large, inputs, labels = (fmean(ends["", key][1]) for key in _NEURONS)
    return Verdict(
        f"Large neurons, {100 * large:.0f} % of all: cosine {inputs:.3f} with the mean pattern, "
        f"{labels:.3f} with ± q, claimed near 1."
    )


def _picture(grid: Dynamics, measured: Measurements, title: str) -> Any:
    seen, neurons = ([r for r in measured if r["kind"] == kind] for kind in ("look", "neuron"))
    return prompt_mechanism(seen, neurons, title=title)


_OF_QUERIES, _OF_KEYS = (partial(lies_along_its_pattern, part) for part in ("query", "key"))


def _figure(name: str, summary: str, steps: int, every: int) -> Figure:
    grid = Dynamics(
        (replace(LEARNER, steps=steps),),
        (PromptTest(0.8, 20), PromptTest(0.8, 20, LARGEST_SUM)),
        every=every,
    )
    return Figure(
        name, summary, grid, looks, _show,
        (attends_to_its_pattern, _OF_QUERIES, _OF_KEYS, neurons_read_patterns),
        _picture, quick(every=5 * every, prompts=200),
    )  # fmt: skip


FIGURES = (
    _figure("fig-6-2", "keys, queries, attention and neurons of an in-context learner", 400, 10),
    _figure("fig-6-2-long", "the same for ten times as many steps", 4000, 100),
)
