"""Each message against its definition: convolutions over [B, C, N, k], as in the paper's code."""

import pytest
import torch
from torch import Tensor, nn

from graphtheory.vision.nn import (
    AttentionMessage,
    EdgeMessage,
    MaxRelative,
    Message,
    SageMessage,
)
from graphtheory.vision.nn.messages import GroupedLinear, largest_source

DIM, NODES, K = 8, 11, 4
KINDS = (MaxRelative, EdgeMessage, SageMessage, AttentionMessage)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x, sources = (torch.randn(n, DIM, generator=draw) for n in (NODES, NODES + 3))
    lists = torch.stack([torch.randperm(NODES + 3, generator=draw)[:K] for _ in range(NODES)])
    return x, sources, lists


def made(kind: type[Message]) -> Message:
    message = kind(DIM)
    for part in message.modules():
        if isinstance(part, nn.BatchNorm1d):  # not what a new norm does
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.uniform_(part.bias)
    return message


def convolved(mix: nn.Sequential, maps: Tensor, training: bool) -> Tensor:
    """A `mixed` on maps [1, C, N, k], by a grouped convolution and a norm of two axes."""
    linear, norm = mix[0], mix[1]
    maps = nn.functional.conv2d(maps, linear.weight[..., None, None], linear.bias, groups=4)
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    options = (mean, var, norm.weight, norm.bias, training)
    return nn.functional.gelu(nn.functional.batch_norm(maps, *options))


def definition(message: Message, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
    """[1, 2 C, N] of x [N, C]."""
    own = x.T[None, :, :, None]
    near = sources[lists].permute(2, 0, 1)[None]  # [1, C, N, k]
    training = message.training
    if isinstance(message, MaxRelative):
        largest = (near - own).amax(3, keepdim=True)
        pairs = torch.stack([own, largest], 2).flatten(1, 2)
        return convolved(message.mix, pairs, training)[..., 0]
    if isinstance(message, EdgeMessage):
        pairs = torch.cat([own.expand_as(near), near - own], 1)
        return convolved(message.mix, pairs, training).amax(3)
    mapped = convolved(message.map, sources.T[None, :, :, None], training)[0, :, :, 0].T
    largest = mapped[lists].permute(2, 0, 1)[None].amax(3, keepdim=True)
    return convolved(message.mix, torch.cat([own, largest], 1), training)[..., 0]


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("training", [True, False])
def test_equal_to_the_definition(
    kind: type[Message], training: bool, given: tuple[Tensor, ...]
) -> None:
    message = made(kind).train(training)
    x, sources, lists = given
    leaves = [x.requires_grad_(), sources.requires_grad_()]
    wanted = definition(message, x, sources, lists)[0].T
    found = message(x, sources, lists)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    back = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    leaves += list(message.parameters())
    both = (torch.autograd.grad(out, leaves, back) for out in (found, wanted))
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@every_kind
def test_weights_tell_who_had_a_part(kind: type[Message], given: tuple[Tensor, ...]) -> None:
    message = made(kind).eval()
    x, sources, lists = given
    weights = message.weights(x, sources, lists).view(NODES, K, -1)
    torch.testing.assert_close(weights.sum(1), torch.ones(NODES, weights.size(2)))
    node = 3
    quiet = weights[node].sum(1).argmin()
    loud = weights[node].sum(1).argmax()
    moved = []
    for place in (quiet, loud):
        other = sources.clone()
        other[lists[node, place]] -= 1e-3  # a little lower: only the largest features change
        moved.append((message(x, other, lists) - message(x, sources, lists))[node].abs().sum())
    assert moved[1] > moved[0]
    assert moved[0] == 0 or weights[node, quiet].sum() > 0


def test_of_equal_sources_the_first_is_largest_and_groups_have_to_divide() -> None:
    values = torch.tensor([[1.0, 2.0], [1.0, 3.0], [0.0, 3.0]])
    assert largest_source(values, torch.tensor([[2, 0, 1]])).tolist() == [[0, 2]]
    with pytest.raises(ValueError, match="groups: got 4, expected a divisor of 6 and 8"):
        GroupedLinear(6, 8)


def test_attention_is_that_of_the_layer(given: tuple[Tensor, ...]) -> None:
    message, (x, sources, lists) = made(AttentionMessage).eval(), given
    attention = message.attention
    w, b = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    q, k, v = (
        (t @ m.T + c).view(-1, 4, DIM // 4)
        for t, m, c in zip((x, sources, sources), w, b, strict=True)
    )
    weights = ((q[:, None] * k[lists]).sum(3) / (DIM // 4) ** 0.5).softmax(1)  # [N, k, heads]
    seen = attention.out((weights[..., None] * v[lists]).sum(1).flatten(1))
    pairs = torch.stack([x, seen], 2).flatten(1)
    torch.testing.assert_close(message(x, sources, lists), message.mix(pairs))
    found = message.weights(x, sources, lists)
    torch.testing.assert_close(found.view(NODES, K, 4), weights)
