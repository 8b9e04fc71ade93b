import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.papers.shallow import PatternStart, ShallowAttention, orthonormal
from graphtheory.patterns import AddSelf, Compose, KHop
from tests.papers.conftest import drawn


def test_rows_are_orthonormal_and_no_more_than_dimensions(generator: torch.Generator) -> None:
    rows = orthonormal(4, 4, generator)
    torch.testing.assert_close(rows @ rows.t(), torch.eye(4))
    assert not torch.equal(rows, orthonormal(4, 4, generator)) and rows.is_contiguous()
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"count: got {count}, expected 1 to dim=4"):
            orthonormal(count, 4, generator)


NODES, DIM, TRIALS = 5, 4, 3


def graph(trials: int = TRIALS) -> Neighborhood:
    """A path of five nodes for each trial, two hops and the node itself."""
    path = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]])
    edges = torch.cat([path + NODES * t for t in range(trials)], 1)
    return Compose(KHop(2), AddSelf())(Neighborhood.from_edge_index(edges, NODES * trials))


def net(positions: int = 1, trials: int = TRIALS) -> ShallowAttention:
    made = ShallowAttention(
        DIM, (3, 2), 7, trials=trials, buckets=2, positions=positions, generator=drawn()
    )
    with torch.no_grad():
        made.b.normal_(generator=drawn(1))
    return made


def by_hand(model: ShallowAttention, t: int, x: Tensor, n: int, place: int = 0) -> Tensor:
    """Eq. (3.1) of one node, source by source."""
    heard = [s for s in range(NODES) if abs(s - n) <= 2]
    logits = torch.stack(
        [
            (model.W_K[t] @ x[s]) @ (model.W_Q[t] @ x[n]) + model.b[t, min(abs(s - n), 1)]
            for s in heard
        ]
    )
    weights = logits.softmax(0)
    total = sum(w * (model.W_V[t] @ x[s]) for w, s in zip(weights, heard, strict=True))
    return model.a[t, place] @ torch.relu(model.W_O[t] @ total)


def test_each_trial_is_the_formula_with_gradients_of_its_own() -> None:
    model, x = net(), torch.randn(TRIALS * NODES, DIM, generator=drawn(2))
    out = model(x, graph())
    for t, own in enumerate(x.split(NODES)):
        wanted = torch.stack([by_hand(model, t, own, n) for n in range(NODES)])
        torch.testing.assert_close(out[t], wanted)
        torch.testing.assert_close(model.trial(t)(own, graph(1))[0], wanted)
    weights = model.attention(x, graph())
    rows = torch.zeros(TRIALS * NODES).index_add(0, graph().targets(), weights[:, 0].detach())
    torch.testing.assert_close(rows, torch.ones(TRIALS * NODES))
    even = model.without_attention().attention(x, graph())[:, 0]
    torch.testing.assert_close(even, 1 / graph().degree()[graph().targets()].float())
    model(x, graph())[1].sum().backward()
    alone = model.trial(1)
    alone(x[NODES : 2 * NODES], graph(1)).sum().backward()
    for name, value in model.named_parameters():
        slope, wanted = value.grad, alone.get_parameter(name).grad
        assert slope is not None and wanted is not None
        torch.testing.assert_close(slope[1], wanted[0])
        assert not slope[0].any() and not slope[2].any()


def test_some_rows_and_a_position_each() -> None:
    model, x = net(positions=2), torch.randn(TRIALS * NODES, DIM, generator=drawn(2))
    nodes = torch.tensor([[3, 1], [0, 4], [2, 2]])
    ids = (nodes + NODES * torch.arange(TRIALS)[:, None]).flatten()
    place = torch.tensor([1, 0, 0, 1, 1, 1])
    out = model(x, graph().rows(ids), ids, place)
    for t in range(TRIALS):
        for i in range(2):
            wanted = by_hand(
                model, t, x[t * NODES :][:NODES], int(nodes[t, i]), int(place[2 * t + i])
            )
            torch.testing.assert_close(out[t, i], wanted)


@pytest.mark.parametrize("matched", [2, 10])
def test_a_start_keeps_the_assumption(matched: int) -> None:
    model = ShallowAttention(20, 20, 40, trials=2, buckets=4)
    mu = torch.linalg.qr(torch.randn(2, 20, 10, generator=drawn()))[0].transpose(1, 2)
    PatternStart(sigma=0.1, delta=0.2, matched=matched)(model, mu, drawn())
    with torch.no_grad():
        p, q, r = (w @ mu.transpose(1, 2) for w in (model.W_V, model.W_K, model.W_Q))
    for image, error in ((p, 0.1), (q, 0.2), (r, 0.2)):
        assert bool((torch.linalg.matrix_norm(image, 2) <= 1 + 1e-5).all())
        gram = image.transpose(1, 2) @ image
        assert bool(((gram - torch.eye(10)).abs() <= 2 * error + error**2 + 1e-5).all())
        assert float((gram - torch.eye(10)).abs().max()) > 0.1 * error
    near = (q - r).norm(dim=1) <= 0.4 + 1e-5  # both within delta of the same vector
    assert bool(near[:, :2].all()) and bool((near[:, 2:] == (matched == 10)).all())
    assert float(model.W_O.detach().std()) == pytest.approx(0.01, rel=0.1)


def test_a_is_fixed_and_of_the_given_size() -> None:
    model = net()
    assert "a" not in dict(model.named_parameters())
    torch.testing.assert_close(model.a.abs(), torch.full_like(model.a, 7**-0.5))
    assert float(ShallowAttention(3, 3, 8, scale=1 / 8).a.abs().mean()) == 1 / 8


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("width", lambda: ShallowAttention(3, 3, 0)),
        ("neighborhood", lambda: net()(torch.zeros(15, DIM), graph().rows(torch.arange(4)))),
        ("targets", lambda: net()(torch.zeros(15, DIM), graph().rows(torch.arange(3)))),
        ("position", lambda: net(2)(torch.zeros(15, DIM), graph())),
        ("distance", lambda: net()(torch.zeros(15, DIM), Neighborhood.from_edge_index(
            torch.zeros(2, 1, dtype=torch.int64), 15))),
        ("delta", lambda: PatternStart(delta=-1)),
        ("mu", lambda: PatternStart()(ShallowAttention(9, 4, 5), torch.eye(9)[None], drawn())),
    ],
)  # fmt: skip
def test_bad_input_is_named(name: str, work) -> None:
    with pytest.raises(ValueError, match=name):
        work()
