"""`graphtheory reproduce`: every study from the command line to its files."""

import csv
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from typing import Any, NamedTuple

import pytest
from matplotlib.figure import Figure

from graphtheory.lab.cli import main
from graphtheory.lab.train.watch import locked
from graphtheory.papers import figure as index
from graphtheory.papers import stats
from graphtheory.papers.core_neighborhood import figures_labels
from graphtheory.papers.core_neighborhood.figures_distance import up_to
from graphtheory.papers.figure import small
from graphtheory.papers.icl import figures as icl
from graphtheory.papers.icl import figures_methods as methods
from graphtheory.papers.shallow_trials import ends
from graphtheory.papers.topology import figures as sampling


class Tiny(NamedTuple):
    """A figure in a form that takes seconds, and what is said of it."""

    figure: str
    form: Callable[[Any], Any]
    told: tuple[str, ...] = ()  # in the verdict
    printed: tuple[str, ...] = ()  # besides
    dataset: str = ""  # "" for the figure's own
    fixtures: tuple[str, ...] = ()


def _quick(name: str) -> Callable[[Any], Any]:
    figure = index.figure(name)
    assert figure is not None
    return figure.quick


_FEW = ("few_images",)
_VIT: dict[str, Any] = {"learner": {"steps": 20, "width": 20}, "data": {"tokens": 10}}
_STEPS = {"learner": {"steps": 80, "width": 20, "step_size": 1.0}}
_GRAPHS = small(cases=_STEPS, values=ends, labels=30, seeds=2, every=20)
_MIXTURE: Any = {
    "learners": {"steps": 20}, "values": slice(2), "seeds": 2,
    "setting": {"dim": lambda dim: min(dim, 3), "neurons": 1},
}  # fmt: skip
_STARTS = small(**_MIXTURE, counts=(50, 100), starts=2)
_RISKS = small(**_MIXTURE, examples=200)
_KINDS = {"total": 100, "copies": 5, "epochs": 1, "widths": (4,)}
_SAMPLES: Any = {
    "tasks": slice(None, None, 2), "labels": (20, 30), "passes": 0.2, "seeds": 1
}  # fmt: skip
_PROMPTS = {"steps": 6, "batch_size": 4, "width": 12, "length": 4}
_EVERY_FIFTH = {"prompts": 20, "tests": slice(None, None, 5)}
_CHAIN: Any = {
    "learner": {"steps": 4, "batch_size": 8}, "seeds": 2,
    "data": {"dim": 18, "num_patterns": 10, "contexts": 6},
}  # fmt: skip
_EXAMPLES = small(**_CHAIN, lengths=(5, 10), prompts=10)
_LAYERS = small(**_CHAIN, every=2, probe={"prompts": 6})
_HEAD = {"limit": 1, "batch_size": 32, "width": 16, "epochs": 2}
_HEADS = small(recipe=_HEAD | {"depth": 2}, seeds=1, lrs=slice(1), values=slice(-3, None))
_SCENE: Any = {"scene": {"updates": 2, "batch_size": 16}, "kept": ends, "seeds": 1}
TINY = [
    Tiny("fig-2-1b", small(cases=_VIT, values=slice(2), labels=(4, 8), seeds=2),
         ("2 values of sigma, through which a line always goes",)),
    Tiny("fig-2-1b", small(cases=_VIT, values=slice(3), labels=(4, 8), seeds=2),
         ("claimed a falling line: no verdict of fewer than 3 seeds",)),
    # with as many steps as some trial needs
    Tiny("fig-2-2", small(cases=_VIT | {"learner": {"steps": 150, "width": 20}}, values=slice(2),
                          labels=8, seeds=2)),
    Tiny("fig-2-4", small(cases=_VIT, values=slice(2), labels=8, seeds=2)),
    Tiny("fig-2-5", small(case=_VIT, kept=(10, 6), labels=6, seeds=2), ("at random: the loss",)),
    Tiny("fig-2-6b", small(**_SCENE, labels=(40, 80), most=80), fixtures=_FEW),
    Tiny("fig-2-6c", small(**_SCENE, labels=40, starts=slice(1)), fixtures=_FEW),
    Tiny("fig-3-3b", small(cases=_STEPS, values=slice(None, None, 5), labels=(8, 18, 40), seeds=4),
         ("printed graph: ", "regular graph: "), fixtures=("small_graphs",)),
    *(
        Tiny(name, _GRAPHS, ("no verdict of fewer than 3 seeds",), fixtures=("small_graphs",))
        for name in ("fig-3-4", "fig-3-5", "fig-b-6")
    ),
    Tiny("fig-3-8", small(seeds=1, epochs=2, networks=up_to(3)), (),
         ("distance-z model", "W_Q frozen"), "karate"),
    Tiny("fig-3-9", small(seeds=1, shares=slice(-2, None), recipes={"epochs": 2}), (),
         ("labels", "gt - gcn"), "karate"),
    Tiny("fig-4-1", small(recipe=_KINDS, values=ends, seeds=2),
         ("claimed to rise and then to fall", "accuracy over delta^2")),
    Tiny("fig-4-8", small(recipe=_KINDS, values=ends, seeds=2),
         ("bright minority, both groups", "claimed: rises")),
    *(
        Tiny(name, _STARTS, ("examples at which half of the trials succeed",))
        for name in ("fig-4-2", "fig-4-3b")
    ),
    *(
        Tiny(name, _RISKS, ("of trials end at a minimum",))
        for name in ("fig-4-4a", "fig-4-5b", "fig-4-6a")
    ),
    Tiny("fig-4-5a", small(**_MIXTURE | {"values": (1, 2)}, examples=200),
         ("of trials end at a minimum",)),
    *(
        Tiny(name, _quick(name), (), numbers, dataset, ("data_root",))
        for name, numbers, dataset in (
            ("table-b-1", ("82.05", "88.02", "90.78"), ""),  # printed, printed, found
            ("table-b-5", ("95.68", "86.41", "95.49"), ""),
            ("table-b-6", ("26659", "found"), ""),
            ("table-b-8", ("1520.00", "667.00", "found"), "Actor"),
            ("fig-b-5", ("decreasing", "falls in 2 of 2 steps"), ""),
        )
    ),
    Tiny("fig-c-1", small(**_MIXTURE | {"setting": {"dim": 3}}, examples=200),
         ("relative error of the tensor start",)),
    Tiny("fig-5-2", small(**_SAMPLES, widths=(8, 12)), ("of the variance is left",)),
    Tiny("fig-5-3", small(**_SAMPLES, widths=(8,)), ("of the variance is left",)),
    Tiny("sampling", lambda grid: replace(sampling.shorter(grid), epochs=2, search_epochs=1),
         (), ("neighbors used", "within 1 point"), "karate"),
    Tiny("fig-6-2", icl.quick(_PROMPTS, prompts=20, every=3)),
    Tiny("fig-6-3a", icl.quick(_PROMPTS, **_EVERY_FIFTH)),
    Tiny("fig-6-3a-gpt", icl.quick({"depth": 1, "dim": 8, "steps": 2, "batch_size": 4},
                                   **_EVERY_FIFTH)),
    Tiny("fig-6-4b", small(
        learners=methods.compared(0.6, (5,), methods.BASELINES[-2:],
                                  replace(icl.LEARNER, **_PROMPTS)).learners,
        tests=methods.domains((0.6,), (5,)), prompts=20, seeds=2,
    )),
    Tiny("fig-6-5b", icl.quick(_PROMPTS, prompts=20)),
    Tiny("fig-e-1", small(learner=_PROMPTS, prompts=20, seeds=2, every=3, threshold=0.9)),
    *(Tiny(name, _EXAMPLES) for name in ("fig-7-3c", "fig-7-5")),
    *(Tiny(name, _LAYERS) for name in ("fig-7-6", "fig-7-7")),
    Tiny("deep-fusion-heads", _HEADS, ("transformer minus others", "no head"), fixtures=_FEW),
    Tiny("deep-fusion-batch", _HEADS, ("transformer minus MLP by samples per batch", "512"),
         fixtures=_FEW),
    Tiny("deep-fusion-temperature", _HEADS, ("transformer minus MLP by temperature", "0.02"),
         fixtures=_FEW),
    Tiny("deep-fusion-graphs", lambda grid: replace(_HEADS(grid), heads=("transformer", "dgi")),
         ("DGI: linear probe",), fixtures=("data_root",)),
    Tiny("deep-fusion-attention", small(recipe=_HEAD | {"epochs": 3}, seeds=1),
         ("growth with depth: one seed decides",), fixtures=_FEW),
    Tiny("theorem-1", _quick("theorem-1"), ("Theorem 1 holds in 6 of 6 draws", "Theorem 2: ")),
    *(
        Tiny(name, _quick(name), ("holds",))
        for name in ("kvt-lemma-2", "kvt-lemma-3", "stvit-theorem-1")
    ),
    Tiny("kvt-k", small(variants=slice(2, None, 2), seeds=2, epochs=1),
         ("Half of the patches less all of them",), fixtures=_FEW),
]  # fmt: skip


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.figure)
def test_a_figure_prints_and_draws(tiny: Tiny, tmp_path, capsys, monkeypatch, request) -> None:
    """From seed 3 on, or on its default data; intervals of few resamples, pictures of few dots."""
    for function in (stats.regression_of, stats.boundary, stats.boundaries):
        monkeypatch.setattr(function, "__defaults__", (100,))
    monkeypatch.setattr(Figure, "savefig", partialmethod(Figure.savefig, dpi=20))
    for fixture in tiny.fixtures:
        request.getfixturevalue(fixture)
    figure = index.figure(tiny.figure)
    assert figure is not None
    monkeypatch.setattr(index, "figure", lambda _: replace(figure, quick=tiny.form))
    given = ["--dataset", tiny.dataset] if tiny.dataset else [] if figure.data else ["--seed", "3"]
    assert main(["reproduce", figure.id, "--quick", *given, "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert found["verdict"] and all(words in found["verdict"] for words in tiny.told)
    assert all(words in printed for words in (found["verdict"], *tiny.printed))
    seeds = {row["seed"] for row in found["rows"] if "seed" in row}
    assert figure.data or seeds == set(range(3, 3 + len(seeds))) != set()
    if figure.picture is not None:
        assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    with path.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and all(f"dataset={tiny.dataset}" in row["parameters"] for row in rows
                        if tiny.dataset)  # fmt: skip


def test_the_list_names_every_entry_and_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    every = index.figures()
    assert main(["reproduce", "--list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == list(every)
    assert all(entry.summary in line for entry, line in zip(every.values(), lines, strict=True))
    data = {name: str(entry.data or "draws its own") for name, entry in every.items()}
    assert data["fig-3-8"] == "any graph, else Cora" and data["fig-5-1"] == "draws its own"
    assert data["encoding"] == "Cora, minesweeper"


def test_an_interrupted_study_goes_on_or_is_set_aside(tmp_path, capsys, monkeypatch) -> None:
    words = ["reproduce", "fig-3-9", "--dataset", "karate", "--quick", "--out", str(tmp_path)]
    kept = tmp_path / "fig-3-9-karate.jsonl"
    train = figures_labels.train_nodes
    figure = index.figure("fig-3-9")
    few = small(seeds=1, recipes={"epochs": 1})
    monkeypatch.setattr(index, "figure", lambda _: replace(figure, quick=few))

    def until_the_third(*args: Any, **options: Any) -> Any:
        if kept.exists() and len(kept.read_text().splitlines()) == 2:
            raise KeyboardInterrupt
        return train(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(figures_labels, "train_nodes", until_the_third)
        assert main(words) == 130
    assert "Finished runs are in" in capsys.readouterr().out
    assert main([*words, "--resume"]) == 0
    assert "run 3/" in (told := capsys.readouterr().err) and "run 2/" not in told
    assert len(kept.read_text().splitlines()) == 12
    networks = tmp_path / "fig-3-9-karate.under-way"
    (networks / "a network").mkdir(parents=True)
    monkeypatch.setattr(figures_labels, "train_nodes", until_the_third)
    with locked(tmp_path, ".fig-3-9-karate.lock"):
        assert main(words) == 2
    assert "another run is using it" in capsys.readouterr().err and networks.exists()
    assert main(words) == 130
    assert "Earlier runs are now in" in capsys.readouterr().out
    assert len((tmp_path / "fig-3-9-karate.1.jsonl").read_text().splitlines()) == 12
    assert (tmp_path / "fig-3-9-karate.1.under-way" / "a network").exists()
    assert not networks.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_sigterm_tells_what_is_kept(tmp_path, capsys, monkeypatch) -> None:
    def told_to_leave(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(figures_labels, "train_nodes", told_to_leave)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught:
            main(["reproduce", "fig-3-9", "--dataset", "karate", "--quick", "--out", str(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == 143 and "Finished runs are in" in capsys.readouterr().out
