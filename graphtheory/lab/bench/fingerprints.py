"""Molecules without a network: Morgan fingerprints and gradient-boosted trees, for comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from graphtheory.lab.bench.config import RunConfig, RunResult, constant_score
from graphtheory.lab.bench.spaces import Space
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.train import FitResult
from graphtheory.lab.train.score import SCORES, Score, ogb_score

NAME = "ecfp"
_AXES: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.02, 0.05, 0.1),
    "max_iter": (100, 300),
    "max_leaf_nodes": (7, 15, 31),
    "min_samples_leaf": (5, 20),
    "l2_regularization": (0.0, 1.0, 10.0),
    "max_features": (0.1, 0.3, 1.0),
}


@dataclass(frozen=True)
class TreesRunConfig(RunConfig):
    """Options of the trees and of the fingerprints.

    Attributes:
        model: "ecfp".
        learning_rate: Of the boosting.
        max_iter: Trees of a label; the number used is chosen on validation.
        max_leaf_nodes: Leaves of a tree.
        min_samples_leaf: Molecules of a leaf.
        l2_regularization: Of the leaves' values.
        max_features: Share of the bits that a split may choose from.
        radius: Bonds around an atom that a substructure reaches.
        bits: Of a fingerprint.
    """

    model: str = NAME
    learning_rate: float = 0.05
    max_iter: int = 300
    max_leaf_nodes: int = 15
    min_samples_leaf: int = 20
    l2_regularization: float = 0.0
    max_features: float = 0.3
    radius: int = 2
    bits: int = 2048


def space(like: Space) -> Space:
    """The axes of the trees, judged on as many seeds as networks are."""
    return Space(like.epochs, like.patience, like.search_seeds, _AXES, config=TreesRunConfig)


def check(graphs: GraphSet) -> list[str]:
    """Return the molecules' SMILES; no others are taken, nor an installation without rdkit.

    Raises:
        ValueError: Either of these, or a SMILES that rdkit does not read.
    """
    if graphs.smiles is None:
        raise ValueError(f"model: {NAME} reads molecules, and {graphs.name} has no SMILES")
    if find_spec("rdkit") is None:
        raise ValueError(f"model: {NAME} needs rdkit: pip install 'graphtheory[molecules]'")
    wrong = _unread(tuple(graphs.smiles))
    if wrong is not None:
        raise ValueError(
            f"model: {NAME} cannot read the SMILES of graph {wrong}, {graphs.smiles[wrong]!r}; "
            "take the graph out"
        )
    return graphs.smiles


@lru_cache(maxsize=2)
def _unread(smiles: tuple[str, ...]) -> int | None:
    """Position of the first SMILES that rdkit does not read; None where it reads all."""
    from rdkit import Chem
    from rdkit.rdBase import BlockLogs

    with BlockLogs():  # its own lines on the error stream
        return next((i for i, s in enumerate(smiles) if Chem.MolFromSmiles(s) is None), None)


def run(config: TreesRunConfig, graphs: GraphSet, *, seed: int) -> RunResult:
    """Train once on the split of the set; `seed` is the trees' random_state.

    The number of trees is that of the best validation score, as networks take their best epoch.

    Raises:
        ValueError: Graphs that are no molecules, or no rdkit.
    """
    bits = _bits(tuple(check(graphs)), config.radius, config.bits)
    y = torch.as_tensor(graphs._data.y)
    parts = [graphs.train_index, graphs.val_index, graphs.test_index]
    score = _score(graphs)
    began = time.perf_counter()
    found, leaves = _staged(config, graphs.kind, bits, y, parts, seed)
    seconds = time.perf_counter() - began
    (train, val, test) = (y[part] for part in parts)
    history, best = [], 0
    for step, (on_val, on_test) in enumerate(found):
        row = {"epoch": float(step + 1), "val": score(on_val, val), "test": score(on_test, test)}
        history.append(row)
        if _better(score, row["val"], history[best]["val"]):
            best = step
    fit = FitResult(
        history[best]["test"], history[best]["val"], best + 1, len(history),
        seconds / len(history), float("nan"), [],
    )  # fmt: skip
    constant = constant_score(score, graphs.kind, train, test, graphs.num_outputs)
    return RunResult(fit, None, None, leaves, constant)


def _better(score: Score, one: float, other: float) -> bool:
    return one > other if score.higher_is_better else one < other


def _score(graphs: GraphSet) -> Score:
    return SCORES[graphs.metric] if graphs.evaluator is None else ogb_score(graphs.evaluator)


@lru_cache(maxsize=2)
def _bits(smiles: tuple[str, ...], radius: int, bits: int) -> np.ndarray:
    """Compute Morgan fingerprints, uint8 [G, bits]."""
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=radius, fpSize=bits)
    return np.stack([generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(s)) for s in smiles])


def _staged(
    config: TreesRunConfig, kind: str, bits: np.ndarray, y: Tensor, parts: list[Tensor], seed: int
) -> tuple[list[tuple[Tensor, Tensor]], int]:
    """Predictions on validation and test after every tree, and the number of leaves in the end."""
    columns = [y] if kind == "multiclass" else list(y.unbind(1))
    stages, leaves = [], 0
    for label in columns:
        train = parts[0][~label[parts[0]].isnan()] if label.is_floating_point() else parts[0]
        given = label[train].numpy()
        if len(np.unique(given)) < 2:  # nothing to tell apart: every molecule is predicted alike
            flat = [torch.full((len(p), 1), float(given[0]) if len(given) else 0.0) for p in parts]
            stages.append([(flat[1], flat[2])] * config.max_iter)
            continue
        model = _model(config, kind, seed).fit(bits[train.numpy()], given)
        leaves += sum(t.get_n_leaf_nodes() for trees in model._predictors for t in trees)
        staged = model.staged_predict if kind == "regression" else model.staged_decision_function
        pairs = zip(*(staged(bits[p.numpy()]) for p in parts[1:]), strict=True)
        stages.append([(_column(a, kind), _column(b, kind)) for a, b in pairs])
    together = zip(*stages, strict=True)
    return [
        (torch.cat([a for a, _ in step], 1), torch.cat([b for _, b in step], 1))
        for step in together
    ], leaves


def _model(config: TreesRunConfig, kind: str, seed: int) -> Any:
    trees = (
        HistGradientBoostingRegressor if kind == "regression" else HistGradientBoostingClassifier
    )
    return trees(
        learning_rate=config.learning_rate, max_iter=config.max_iter,
        max_leaf_nodes=config.max_leaf_nodes, min_samples_leaf=config.min_samples_leaf,
        l2_regularization=config.l2_regularization, max_features=config.max_features,
        early_stopping=False, random_state=seed,
    )  # fmt: skip


def _column(found: np.ndarray, kind: str) -> Tensor:
    """One column of values or logits; of several classes a logit each."""
    values = torch.from_numpy(np.ascontiguousarray(found)).float()
    if values.dim() == 2:
        return values
    if kind == "multiclass":  # two classes have one decision value
        return torch.stack([torch.zeros_like(values), values], 1)
    return values[:, None]
