from typing import Any

import pytest
import torch

from graphtheory.papers.topology.training import Algorithm2, Perturbation, Regularizers


def test_penalties_by_hand() -> None:
    w = torch.tensor([[3.0, 0.0], [4.0, 2.0]])  # columns of norm 5 and 2
    v = torch.tensor([[1.0, 2.0, 2.0]])
    # lambda = 1/4: (5/2)^4 + 1 and 9/4.
    assert Regularizers(1.0, 0.0)(w, v, 0.25) == 2.5**4 + 1
    assert Regularizers(0.0, 2.0)(w, v, 0.25) == 4.5
    assert Regularizers()(w, v, 1.0) == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Perturbation, {"sigma_w": -1.0}, "sigma_w: got -1.0, expected 0 or more"),
        (Perturbation, {"noise": float("nan")}, "noise: got nan"),
        (Regularizers, {"lambda_v": -0.1}, "lambda_v: got -0.1"),
        (Algorithm2, {"step_size": 0.0}, "step_size: got 0.0, expected above 0 and below 1"),
        (Algorithm2, {"step_size": 1.0}, "step_size: got 1.0"),
        (Algorithm2, {"outer": 0}, "outer: got 0, expected a whole number, at least 1"),
        (Algorithm2, {"inner": -1}, "inner: got -1"),
        (Algorithm2, {"batch_size": 0}, "batch_size: got 0"),
        (Algorithm2, {"batch_size": 2.5}, "batch_size: got 2.5, expected a whole number"),
        (Algorithm2, {"inner": 10.0}, "inner: got 10.0, expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)
