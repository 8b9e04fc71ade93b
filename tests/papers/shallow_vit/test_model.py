import pytest
import torch
from torch import Generator, Tensor

from graphtheory import Neighborhood
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.shallow_vit.training import ShallowViT

DIM, TRIALS, TOKENS = 3, 2, 4


def drawn(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def net(positions: int) -> ShallowAttention:
    return ShallowAttention(DIM, 2, 5, trials=TRIALS, positions=positions, generator=drawn())


def by_hand(model: ShallowAttention, t: int, x: Tensor, places: list[int]) -> Tensor:
    """Eq. (2.1) of one set, token by token."""
    total = torch.zeros(())
    for own, place in zip(x, places, strict=True):
        weights = torch.stack([(model.W_K[t] @ s) @ (model.W_Q[t] @ own) for s in x]).softmax(0)
        heard = model.W_V[t] @ (weights[:, None] * x).sum(0)
        total = total + model.a[t, place] @ torch.relu(model.W_O[t] @ heard)
    return total / len(x)


@pytest.mark.parametrize("positions", [1, TOKENS])
def test_sets_are_the_formula_on_the_tokens_that_stay(positions: int) -> None:
    """Two trials with two sets of four tokens; of each set three stay."""
    model, x = net(positions), torch.randn(16, DIM, generator=drawn(1))
    place = torch.arange(16) % TOKENS
    stay = torch.tensor([[0, 2, 3], [5, 4, 7], [8, 9, 11], [12, 13, 14]])
    rows = Neighborhood(torch.arange(5) * 3, stay.flatten(), 16)
    vit = ShallowViT(model, place if positions > 1 else None)
    out = vit(x, rows, torch.tensor([0, 4, 8, 12]))
    for index, ids in enumerate(stay.tolist()):
        t, b = divmod(index, 2)
        places = [i % TOKENS if positions > 1 else 0 for i in ids]
        torch.testing.assert_close(out[t, b], by_hand(model, t, x[ids], places))


def test_attention_is_among_the_tokens_of_a_set() -> None:
    x, rows = (
        torch.randn(8, DIM, generator=drawn(1)),
        Neighborhood(torch.tensor([0, 4, 8]), torch.arange(8).flip(0), 8),
    )
    weights, inside, ids = ShallowViT(net(1)).attention(x, rows)
    assert ids.tolist() == [7, 6, 5, 4, 3, 2, 1, 0] and inside.num_edges == 32
    sums = torch.zeros(8).index_add(0, inside.targets(), weights[:, 0].detach())
    torch.testing.assert_close(sums, torch.ones(8))


def test_uneven_sets_and_missing_places_are_refused() -> None:
    rows = Neighborhood(torch.tensor([0, 3, 4]), torch.arange(4), 4)
    with pytest.raises(ValueError, match="rows: 1 to 3 tokens"):
        ShallowViT(net(1))(torch.zeros(4, DIM), rows, torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"place: not given, expected 0\.\.3"):
        ShallowViT(net(TOKENS))
