"""Tokens of graphs: where nodes are, and what is known of the pairs with a token."""

import pytest
import torch

from graphtheory.graph import TOKEN, GraphTokens, cliques

SIZES = [2, 0, 3]


def test_nodes_and_tokens_fill_the_graphs() -> None:
    for sizes in (SIZES, torch.tensor(SIZES)):
        tokens = GraphTokens(sizes)
        assert tokens.nodes.tolist() == [0, 1, 4, 5, 6]
        assert tokens.tokens.tolist() == [2, 3, 7]
        assert tokens.batch.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
        assert tokens.cliques().sets.dst == (3, 1, 4)


def test_features_and_edges_move_with_their_nodes() -> None:
    tokens, x, token = GraphTokens(SIZES), torch.randn(5, 2), torch.randn(2, requires_grad=True)
    found = tokens.features(x, token)
    assert torch.equal(found[tokens.nodes], x)
    assert torch.equal(found[tokens.tokens], token.expand(3, 2))
    found.sum().backward()
    assert token.grad.tolist() == [3, 3]
    edges = torch.tensor([[0, 3], [1, 4]])
    assert tokens.edge_index(edges).tolist() == [[0, 5], [1, 6]]


def test_distances_and_biases_of_all_pairs() -> None:
    tokens, old = GraphTokens(SIZES), cliques(SIZES)
    hops = torch.arange(old.num_edges).to(torch.uint8)
    hops[3], hops[5] = 254, 255
    new = tokens.cliques().replace(distance=tokens.distance(hops))
    dense = torch.full((8, 8), -1)
    dense[new.targets(), new.indices] = new.distance.long()
    inner = dense[tokens.nodes][:, tokens.nodes]
    wanted = torch.full((5, 5), -1)
    wanted[old.targets(), old.indices] = torch.where(hops == 254, 253, hops).long()
    assert torch.equal(inner, wanted)
    for graph, token in enumerate(tokens.tokens.tolist()):
        mine = tokens.batch == graph
        assert (dense[token, mine] == TOKEN).all() and (dense[mine, token] == TOKEN).all()
        assert (dense[token, ~mine] == -1).all()
    bias = torch.randn(old.num_edges, 2)
    moved = tokens.bias(bias)
    assert torch.equal(moved[new.distance != TOKEN], bias)
    assert not moved[new.distance == TOKEN].any()


def test_wrong_input_is_refused() -> None:
    tokens = GraphTokens(SIZES)
    with pytest.raises(ValueError, match="x: 4 rows, expected 5"):
        tokens.features(torch.zeros(4, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"distance: shape \(3,\), expected \[13\]"):
        tokens.distance(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"distance: shape \(14,\), expected \[13\]"):
        tokens.distance(torch.zeros(14, dtype=torch.uint8))
    with pytest.raises(ValueError, match="bias: 3 rows, expected 13"):
        tokens.bias(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="sizes: got"):
        GraphTokens([-1])
