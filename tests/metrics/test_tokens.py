import pytest
import torch

from graphtheory import Neighborhood, cliques, ops
from graphtheory.graph import Grid
from graphtheory.metrics import (
    attention_deviation,
    branch_ratio,
    nonlocality,
    patch_positions,
    token_similarity,
)
from graphtheory.patterns import TopK


def source() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_similarity_is_the_mean_of_all_pairs() -> None:
    tokens = torch.randn(2, 5, 3, generator=source())
    cosines = [
        torch.cosine_similarity(image[i], image[j], dim=0)
        for image in tokens
        for i in range(5)
        for j in range(5)
        if i != j
    ]
    assert token_similarity(tokens) == pytest.approx(float(torch.stack(cosines).mean()))
    assert token_similarity(tokens[:, :1].expand(-1, 4, -1)) == pytest.approx(1)


def test_deviation_by_hand_with_the_zeros_of_who_was_left_out() -> None:
    # Row 0 has weights 1/2, 1/2; row 1 none; row 2 has 1, 0, 0, 0.
    nb = Neighborhood(torch.tensor([0, 2, 2, 6]), torch.tensor([0, 1, 0, 1, 2, 2]))
    weights = torch.tensor([0.5, 0.5, 1.0, 0.0, 0.0, 0.0])[:, None].expand(-1, 2)
    assert attention_deviation(weights, nb) == pytest.approx((0 + (3 / 16) ** 0.5) / 2)


def test_nearest_attention_deviates_more_than_dense() -> None:
    nb = cliques([8, 8])
    q, k = torch.randn(2, 16, 2, 4, generator=source())
    sharp, dense = (attention_deviation(TopK(n).weights(q, k, nb), nb) for n in (2, 8))
    assert sharp > 1.5 * dense


def test_ratio_of_norms_leaves_zeros_out() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    assert branch_ratio(x, torch.tensor([[0.0, 5.0], [1.0, 1.0], [3.0, 0.0]])) == 1.25


def test_nonlocality_by_hand_with_a_class_token() -> None:
    nb, places = cliques([4]), patch_positions(Grid(1, 1, 3), prefix=1)
    weights = torch.tensor([
        [0.7, 0.1, 0.1, 0.1],  # the class token does not count
        [0.5, 0.0, 0.0, 0.5],  # 2 away with all that goes to patches
        [0.2, 0.4, 0.2, 0.2],  # (0.4 + 0.2) / 0.8
        [1.0, 0.0, 0.0, 0.0],  # nothing goes to patches
    ]).view(-1, 1)  # fmt: skip
    assert nonlocality(weights, nb, places) == pytest.approx((2 + 0.75) / 2)
    two = nonlocality(weights.repeat(2, 1), cliques([4, 4]), patch_positions(Grid(2, 1, 3), 1))
    assert two == pytest.approx(1.375)


@pytest.mark.parametrize("k", [1, 3, 6, 99])
def test_lemma_1_gradient_is_the_covariance_under_the_weights(k: int) -> None:
    # d o_l / d W_Q[i, j] = scale * x_li * W_K[:, j]^T Var_{a_l}(x) W_V over the chosen senders.
    x, nb = torch.randn(6, 4, generator=source(), dtype=torch.float64), cliques([6])
    w_q, w_k, w_v = torch.randn(3, 4, 5, generator=source(), dtype=torch.float64)

    def out(w_q: torch.Tensor) -> torch.Tensor:
        parts = (t[:, None] for t in (x @ w_q, x @ w_k, x @ w_v))
        return ops.topk_attention(*parts, nb, k)[:, 0]

    found = torch.autograd.functional.jacobian(out, w_q)  # [6, 5, 4, 5]
    weights = TopK(k).weights((x @ w_q)[:, None], (x @ w_k)[:, None], nb).view(6, 6)
    assert ((weights > 0).sum(1) == min(k, 6)).all()
    mean = weights @ x
    spread = torch.einsum("lm,ma,mb->lab", weights, x, x) - mean[:, :, None] * mean[:, None]
    lemma = 5**-0.5 * torch.einsum("li,aj,lab,bo->loij", x, w_k, spread, w_v)
    torch.testing.assert_close(found, lemma)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_similarity(torch.ones(2, 1, 3)), r"tokens: shape \(2, 1, 3\), expected"),
        (lambda: branch_ratio(torch.ones(2, 3), torch.ones(3)), r"branch: shape \(3,\), expected"),
        (lambda: branch_ratio(torch.zeros(2, 3), torch.ones(2, 3)), "x: zero everywhere"),
        (lambda: attention_deviation(torch.ones(3, 1), cliques([2])), r"weights: shape \(3, 1\)"),
        (
            lambda: nonlocality(torch.ones(4, 1), cliques([2]), torch.ones(3, 2)),
            r"position: shape \(3, 2\), expected \(2, 2\)",
        ),
        (
            lambda: nonlocality(torch.ones(1, 1), cliques([1]), torch.full((1, 2), torch.nan)),
            "position: no weight between two places",
        ),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
