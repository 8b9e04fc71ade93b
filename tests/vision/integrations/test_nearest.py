"""k-nearest attention under a mask, against its definition on dense logits."""

import pytest
import torch
from torch import Tensor

from graphtheory.patterns import TopK
from graphtheory.vision.integrations.nearest import nearest_attention

LEAST = torch.finfo(torch.float32).min


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def seen(kind: str) -> Tensor:
    """Who may be seen, [2, 1, 5, 6]: a row of each image sees nobody."""
    allowed = draw(2, 1, 5, 6) > -0.5
    allowed[:, :, 2] = False
    return allowed if kind == "bool" else torch.where(allowed, 0.25, LEAST)


@pytest.mark.parametrize("k", [1, 3, 99, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "numbers"])
def test_by_the_definition(kind: str, k: int | float) -> None:
    query, key, value = draw(2, 4, 5, 3), draw(2, 2, 6, 3), draw(2, 2, 6, 3)
    mask = None if kind in ("none", "causal") else seen(kind)
    out, weights = nearest_attention(
        query, key, value, mask, TopK(k), causal=kind == "causal", with_weights=True
    )
    key, value = (t.repeat_interleave(2, 1) for t in (key, value))
    logits = query @ key.transpose(2, 3) * 3**-0.5
    if kind == "causal":
        logits = logits.masked_fill(~torch.ones(5, 6).bool().tril(), -torch.inf)
    elif mask is not None:
        logits = logits.masked_fill(~seen("bool"), -torch.inf)
    chosen = logits.masked_fill(~TopK(k).mask(logits), -torch.inf)
    wanted = chosen.softmax(3).nan_to_num(0)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(out, (wanted @ value).transpose(1, 2))
