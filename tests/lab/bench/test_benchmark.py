from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.lab.bench.benchmark import Benchmark, Run, named_task
from graphtheory.lab.bench.node_config import load, train_nodes
from graphtheory.lab.bench.task import CONSTANT
from graphtheory.lab.zoo import node_models as zoo

SMALL = Benchmark(named_task("karate"), models=("gt", "mlp"), seeds=2, epochs=4)
MEASURED = ("seconds_per_epoch", "peak_mb")


def without_clock(run: Run) -> dict[str, Any]:
    values = {name: value for name, value in asdict(run).items() if name not in MEASURED}
    values["history"] = [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]
    return values


def losses(history: list[dict[str, float]]) -> list[tuple[float, float]]:
    return [(row["train_loss"], row["val_loss"]) for row in history]


@pytest.fixture(scope="module")
def rows() -> list[Run]:
    return SMALL.run()


def test_one_row_a_model_and_seed_and_bitwise_the_same_in_any_order(rows: list[Run]) -> None:
    assert [(r.seed, r.model) for r in rows] == [(0, "gt"), (0, "mlp"), (1, "gt"), (1, "mlp")]
    for run in rows:
        assert 0 <= run.test <= 1 and 0 <= run.val <= 1
        assert run.parameters > 0 and run.seconds_per_epoch > 0 and run.peak_mb >= 0
        assert run.epochs == len(run.history) == 4
        assert [row["epoch"] for row in run.history] == [1, 2, 3, 4]
        assert set(run.history[0]) >= {"epoch", "train_loss", "val_loss", "val", "test"}
        best = max(run.history, key=lambda row: (row["val"], -row["val_loss"]))
        assert (run.val, run.test) == (best["val"], best["test"])
    torch.rand(7)  # a caller who draws in between
    again = replace(SMALL, models=("mlp", "gt")).run()
    by_pair = {(r.model, r.seed): without_clock(r) for r in again}
    for run in rows:
        assert by_pair[run.model, run.seed] == without_clock(run)
    for run in rows:
        trial, epochs, patience = SMALL.config(run.model)
        data = load("karate", None, None, run.seed, **trial.inputs)
        outcome = train_nodes(trial, data, seed=run.seed, epochs=epochs, patience=patience)
        assert losses(outcome.fit.history) == losses(run.history)
        assert outcome.parameters == run.parameters
    assert losses(rows[0].history) != losses(rows[2].history)


def test_what_is_found_of_a_transformer(rows: list[Run]) -> None:
    encoded = rows[0]
    trial, _, _ = SMALL.config("gt")
    data = load("karate", None, None, 0, **trial.inputs)
    graph = Neighborhood.from_edge_index(data.edge_index, data.num_nodes)
    nb = zoo.pattern_of("gt", trial.network)(graph)
    bias = torch.tensor(encoded.extra["bias"])
    assert bias.shape == (trial.network.layers, trial.network.num_buckets, trial.network.heads)
    for layer in range(1, trial.network.layers + 1):
        mass = [r for r in encoded.extra["attention_mass"] if r["layer"] == layer]
        assert sum(r["mass"] for r in mass) == pytest.approx(1, abs=1e-5)
        assert [r["distance"] for r in mass] == nb.distance.unique().tolist()
    assert rows[1].extra == {}
    rows = {r.model: r for r in replace(SMALL, models=zoo.NAMES, seeds=1, epochs=2).run()}
    assert list(rows) == list(zoo.NAMES)
    assert set(rows["gt-plain"].extra) - {CONSTANT} == {"attention_mass"}


def test_own_epochs_and_patience_count_and_wrong_options_are_refused() -> None:
    assert Benchmark(named_task("karate"), epochs=7, patience=3).config("gt")[1:] == (7, 3)
    _, epochs, patience = Benchmark(named_task("karate")).config("gt")
    assert Benchmark(named_task("karate"), epochs=7).config("gt")[1:] == (7, patience)
    assert epochs > 7
    with pytest.raises(ValueError, match="epochs: got 0, expected 1 or more"):
        replace(SMALL, epochs=0).run()
    with pytest.raises(ValueError, match="model: got 'sag'"):
        replace(SMALL, models=("sag",)).run()


def test_progress_counts_runs_and_training_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, int, int]] = []
    replace(SMALL, epochs=1).run(lambda *args: told.append(args))
    assert told == [("gt", 0, 4), ("mlp", 1, 4), ("gt", 2, 4), ("mlp", 3, 4)]
    assert capfd.readouterr() == ("", "")
