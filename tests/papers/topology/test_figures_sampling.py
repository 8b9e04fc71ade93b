"""The study of sampling: what is chosen, the difference to the full batch, and the command."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.papers.grid import Measured
from graphtheory.papers.topology.figures import FIGURES, on_dataset, summary
from graphtheory.papers.topology.sampling import FULL, MLP, Sampling, candidates, choose, scores

(FIGURE,) = [figure for figure in FIGURES if figure.id == "sampling"]
TRIED: Any = ({}, {"lr": 0.5})


def row(sampler: str, seed: int, test: float, **more: Any) -> Measured:
    return {
        "stage": "result", "sampler": sampler, "variant": "", "tried": 0, "budget": 0.1,
        "seed": seed, "val": test, "test": test, "star": None, "heard": 0.1, "edges": 0.1,
        "epochs": 1,
    } | more  # fmt: skip


def test_rows_of_a_small_grid() -> None:
    grid = Sampling(
        candidates("karate", TRIED, 0.3, (FULL, MLP, "degree groups")), "karate", tried=TRIED,
        budgets=(0.3, 0.5), epochs=4, patience=4, search_epochs=2, seeds=2, first=0,
    )  # fmt: skip
    rows = grid.measure(scores)
    searched = [r for r in rows if r["stage"] == "search"]
    assert [r["sampler"] for r in searched] == [FULL] * 4 + ["degree groups"] * 8
    assert {r["epochs"] for r in searched} == {2}
    results = [(r["sampler"], round(r["budget"], 1), r["seed"]) for r in rows[len(searched) :]]
    names = ((FULL, 1.0), (MLP, 1.0), ("degree groups", 0.3), ("degree groups", 0.5))
    assert results == [(*name, seed) for name in names for seed in (0, 1)]
    (sampled,) = (r for r in rows[-1:])
    assert sampled["star"] == sampled["test"]  # p* is 1
    assert 0.2 < sampled["heard"] < 0.9 and sampled["epochs"] == 4
    assert replace(grid, seeds=1).measure(scores)[-1]["seed"] == 0


def test_an_interrupted_search_goes_on_and_more_budgets_run_no_search(tmp_path: Path) -> None:
    ran: list[tuple[float, int, int]] = []

    def made_up(grid: Sampling, candidate: Any, seed: int) -> list[Measured]:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append((candidate.budget, grid.epochs, seed))
        given = {"sampler": candidate.sampler, "variant": candidate.variant}
        return [row(seed=seed, test=0.5, **given, tried=candidate.tried, budget=candidate.budget)]

    kept = tmp_path / "sampling.jsonl"
    grid = Sampling(
        candidates("karate", TRIED, 0.3, (MLP, "LADIES")), "karate", tried=TRIED, budgets=(0.3,),
        epochs=9, search_epochs=2, seeds=1,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        grid.measure(made_up, kept=kept)
    assert ran == [(0.3, 2, 5)] * 3
    ran.append((0, 0, 0))
    rows = grid.measure(made_up, kept=kept)
    assert ran[4:] == [(0.3, 2, 5), (1.0, 9, 5), (0.3, 9, 5)]
    ran.clear()
    more = replace(grid, budgets=(0.3, 0.5)).measure(made_up, kept=kept)
    assert ran == [(0.5, 9, 5)] and more[: len(rows)] == rows


def test_a_graph_brings_its_own_lengths_and_options() -> None:
    cora, facebook = (on_dataset(FIGURE.grid, name, None) for name in ("Cora", "Facebook"))
    assert (cora.seeds, cora.epochs, len(cora.tried)) == (5, 400, 4)
    assert (facebook.seeds, facebook.epochs, len(facebook.tried)) == (3, 600, 3)
    assert cora.cells()[0]["candidate"].trial != facebook.cells()[0]["candidate"].trial


def test_what_is_chosen_is_best_on_validation_whatever_the_test() -> None:
    rows = [
        row("LADIES", 0, 0.9, val=0.5), row("LADIES", 1, 0.9, val=0.6),
        row("LADIES", 0, 0.1, val=0.7, tried=1), row("LADIES", 1, 0.1, val=0.5, tried=1),
    ]  # fmt: skip
    mlp, *given = candidates("karate", TRIED, 0.1, (MLP, "LADIES"))
    rows = [one | {"variant": given[0].variant} for one in rows]
    assert choose([mlp, *given[:2]], rows) == [mlp, given[1]]


def test_differences_are_paired_and_judged_by_one_point() -> None:
    rows = [
        row(FULL, 0, 0.80), row(FULL, 1, 0.90),
        row("LADIES", 1, 0.91), row("LADIES", 0, 0.78),
        row("FastGCN", 0, 0.78), row("FastGCN", 1, 0.885),
        row("FastGCN", 0, 0.99, stage="search"),
    ]  # fmt: skip
    _, ladies, fastgcn = summary(rows)
    assert ladies["gap"] == pytest.approx(-0.005) and ladies["within"]
    assert ladies["s.e."] == pytest.approx(0.015)
    assert fastgcn["gap"] == pytest.approx(-0.0175) and not fastgcn["within"]
    assert fastgcn["gaps"] == pytest.approx([-0.02, -0.015])
