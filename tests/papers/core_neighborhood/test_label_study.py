from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from graphtheory.bench.trial import load
from graphtheory.papers.core_neighborhood import label_study
from graphtheory.papers.core_neighborhood.label_study import (
    MODELS,
    LabelStudy,
    fewer_labels,
    verdict,
)
from tests.bench.conftest import Listen

Y = torch.tensor([0] * 20 + [1] * 10 + [2] * 10)
TRAIN = torch.arange(40) < 30  # class 2 has no training node


def test_every_class_keeps_its_share() -> None:
    kept = fewer_labels(Y, TRAIN, 0.5, seed=0)
    assert not (kept & ~TRAIN).any()
    assert Y[kept].bincount(minlength=3).tolist() == [10, 5, 0]


def test_smaller_shares_are_subsets_and_all_is_all() -> None:
    masks = [fewer_labels(Y, TRAIN, share, seed=3) for share in (0.01, 0.1, 0.4, 0.7, 1.0)]
    for small, large in pairwise(masks):
        assert not (small & ~large).any() and small.sum() < large.sum()
    assert torch.equal(masks[-1], TRAIN)
    assert Y[masks[0]].bincount(minlength=3).tolist() == [1, 1, 0]


def test_seeds_choose_other_nodes_and_the_given_mask_stays() -> None:
    before = TRAIN.clone()
    a, b, again = (fewer_labels(Y, TRAIN, 0.3, seed=s) for s in (0, 1, 0))
    assert not torch.equal(a, b) and torch.equal(a, again)
    assert torch.equal(TRAIN, before)


def test_rows_of_a_small_study() -> None:
    study = LabelStudy("karate", shares=(0.2, 1.0), seeds=2, epochs=2)
    rows = study.run()
    assert [(r["seed"], r["share"], r["model"]) for r in rows] == [
        (seed, share, model) for seed in (0, 1) for share in (0.2, 1.0) for model in MODELS
    ]
    data = load("karate", None, None, 0, degree=False)
    assert rows[-1]["labels"] == int(data.train_mask.sum())
    assert rows[0]["labels"] < rows[-1]["labels"]
    assert all(0 <= r["value"] <= 1 for r in rows)
    assert study.run() == rows


def test_the_transformer_without_encoding_has_the_options_of_the_one_with_it(
    listen: Listen,
) -> None:
    trained = listen(label_study)
    LabelStudy("karate", shares=(1.0,), seeds=1, epochs=1).run()
    encoded, plain, gcn = (trial for trial, _ in trained)
    assert plain == replace(encoded, model="gt-plain") != encoded
    assert (encoded.model, gcn.model) == ("gt", "gcn")


def test_verdict_by_hand() -> None:
    values = {"gt": (0.8, 0.9), "gt-plain": (0.7, 0.9), "gcn": (0.9, 0.7)}
    rows = [
        {"model": m, "labels": 10 + seed, "share": 0.5, "seed": seed, "value": value}
        for m, of in values.items()
        for seed, value in enumerate(of)
    ]
    (line,) = verdict(rows)
    assert (line["share"], line["labels"]) == (0.5, 10.5)
    assert line["gt"] == pytest.approx(0.85) and line["gcn"] == pytest.approx(0.8)
    # Differences seed by seed: 0.1, 0 and -0.1, 0.2; standard error = deviation / sqrt(2).
    assert line["gt - gt-plain"] == pytest.approx(0.05)
    assert line["s.e. gt-plain"] == pytest.approx(0.05)
    assert line["gt - gcn"] == pytest.approx(0.05)
    assert line["s.e. gcn"] == pytest.approx(0.15)


def test_verdict_has_a_line_for_each_share_in_order() -> None:
    rows = [
        {"model": m, "labels": 1, "share": share, "seed": 0, "value": 0.5}
        for share in (1.0, 0.05)
        for m in MODELS
    ]
    lines = verdict(rows)
    assert [line["share"] for line in lines] == [0.05, 1.0]
    assert lines[0]["s.e. gcn"] == 0.0  # one seed has no spread
