from functools import partial

import pytest
import torch
from torch import nn

from graphtheory.vision.nn import MLPHead, TransformerHead

# The paper does not state head size and FFN: these have the printed numbers. Its text says 7 maps
# of the large feed-forward head, which have 6.3 M; the 7.4 M of its table are those of 8.
of_paper = partial(TransformerHead, 512, depth=5, head_dim=64)


@pytest.mark.parametrize(
    ("head", "printed"),
    [
        (of_paper(width=128, heads=8, hidden_channels=432), 1.9),
        (of_paper(width=256, heads=16, hidden_channels=864), 7.6),
        (MLPHead(512, 640, 512, 5), 1.9), (MLPHead(512, 1024, 512, 8), 7.4),
    ],
)  # fmt: skip
def test_the_sizes_of_the_paper_have_the_printed_parameters(
    head: nn.Module, printed: float
) -> None:
    assert round(sum(p.numel() for p in head.parameters()) / 1e6, 1) == printed


def test_it_is_torchs_encoder_with_the_norm_first() -> None:
    head = TransformerHead(8, 3, width=8, depth=2, heads=2, hidden_channels=12)
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    theirs = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
    names = {
        "blocks.": "layers.", "attention.qkv.": "self_attn.in_proj_",
        "attention.out.": "self_attn.out_proj.", "mlp.fc1.": "linear1.", "mlp.fc2.": "linear2.",
    }  # fmt: skip
    state = {}
    for name, tensor in head.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    theirs.load_state_dict({k: v for k, v in state.items() if not k.startswith(("inward", "out."))})
    x = torch.randn(7, 8)
    torch.testing.assert_close(head(x), head.out(theirs(head.inward(x)[None])[0]))


def test_the_attention_of_a_pass_is_that_of_the_pass() -> None:
    head, x = TransformerHead(6, width=8, depth=3, heads=2, head_dim=3), torch.randn(5, 6)
    out, attention = head.with_attention(x)
    torch.testing.assert_close(out, head(x))
    assert [tuple(a.shape) for a in attention] == [(2, 5, 5)] * 3
    torch.testing.assert_close(torch.stack(attention).sum(3), torch.ones(3, 2, 5))
    layer = head.blocks[0].attention
    seen = head.blocks[0].norm1(head.inward(x))
    query, key, value = layer.qkv(seen).view(5, 3, 2, 3).permute(1, 2, 0, 3)
    torch.testing.assert_close(attention[0], (query @ key.mT / 3**0.5).softmax(2))
    branch = layer.out((attention[0] @ value).transpose(0, 1).flatten(1))
    torch.testing.assert_close(layer.with_weights(seen, _clique(5))[0], branch)


def test_a_sample_attends_to_the_batch_and_its_order_does_not_matter() -> None:
    head, x = TransformerHead(6, width=8, depth=2, heads=2), torch.randn(5, 6)
    order = torch.randperm(5)
    torch.testing.assert_close(head(x[order]), head(x)[order])
    assert not torch.allclose(head(x)[:3], head(x[:3]))
    assert [tuple(a.shape) for a in head.with_attention(x[:0])[1]] == [(2, 0, 0)] * 2
    alone, (weights, _) = head.with_attention(x[:1])
    assert alone.shape == (1, 8) and (weights == 1).all()


def test_depth_one_of_the_mlp_is_linear_and_lightly_takes_it() -> None:
    head = MLPHead(6, out_channels=4, depth=1)
    assert [type(layer) for layer in head.layers] == [nn.Linear]
    assert sum(isinstance(m, nn.BatchNorm1d) for m in MLPHead(6, 5, 4, 3).modules()) == 2
    heads = pytest.importorskip("lightly.models.modules.heads", reason="lightly is not installed")
    loss = pytest.importorskip("lightly.loss").NTXentLoss(0.2)
    views = torch.randn(2, 8, 16)
    for head in (heads.SimCLRProjectionHead(16, 32, 8), TransformerHead(16, 8, width=32, heads=4)):
        found = loss(head(views[0]), head(views[1]))
        found.backward()
        assert found.isfinite() and all(p.grad is not None for p in head.parameters())


def test_bad_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="heads: got 3, expected a divisor of dim=8"):
        TransformerHead(4, width=8, heads=3)
    with pytest.raises(ValueError, match="depth: got 0, expected 1 or more"):
        TransformerHead(4, depth=0)
    with pytest.raises(ValueError, match="depth: got 0, expected 1 or more"):
        MLPHead(4, depth=0)
    with pytest.raises(ValueError, match=r"x: shape \(2, 3, 4\), expected \[batch, in_channels\]"):
        TransformerHead(4)(torch.zeros(2, 3, 4))


def _clique(count: int):
    from graphtheory.vision.nn.token_sets import token_cliques

    return token_cliques(1, count, torch.device("cpu"))
