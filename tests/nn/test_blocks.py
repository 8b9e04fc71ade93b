import pytest
import torch
from torch import nn

from graphtheory import bipartite, cliques
from graphtheory.nn import Attention, Block
from graphtheory.nn.blocks import DropPath, LayerScale


@pytest.mark.parametrize("norm_first", [True, False])
def test_it_is_torchs_encoder_layer(norm_first: bool) -> None:
    block = Block(Attention(8, 2), mlp_ratio=3.0, eps=1e-5, norm_first=norm_first)
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.weight)
    theirs = nn.TransformerEncoderLayer(
        8, 2, 24, 0.0, "gelu", batch_first=True, norm_first=norm_first
    )
    names = {
        "attention.qkv.": "self_attn.in_proj_", "attention.out.": "self_attn.out_proj.",
        "mlp.fc1.": "linear1.", "mlp.fc2.": "linear2.",
    }  # fmt: skip
    state = {}
    for name, tensor in block.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    theirs.load_state_dict(state)
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(block(x.flatten(0, 1), cliques([5, 5])), theirs(x).flatten(0, 1))
    out, _ = block.with_weights(x.flatten(0, 1), cliques([5, 5]))
    torch.testing.assert_close(out, theirs(x).flatten(0, 1))


def test_sources_pass_the_norm_and_parts_can_be_left_out() -> None:
    block, x, sources = Block(Attention(8, 2)), torch.randn(2, 8), torch.randn(4, 8)
    nn.init.normal_(block.norm1.weight)
    nb = bipartite([2], [4])
    x1 = x + block.attention(block.norm1(x), nb, sources=block.norm1(sources))
    expected = x1 + block.mlp(block.norm2(x1))
    torch.testing.assert_close(block(x, nb, sources=sources), expected)
    block, x, nb = Block(Attention(8, 2), norm=False, mlp_ratio=0), torch.randn(6, 8), cliques([6])
    torch.testing.assert_close(block(x, nb), x + block.attention(x, nb))
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == {"attention"}


def test_layer_scale_is_on_both_branches() -> None:
    block, x = Block(Attention(8, 2), layer_scale=0.0), torch.randn(6, 8)
    assert torch.equal(block(x, cliques([6])), x)
    nn.init.ones_(block.scale2.gamma)
    torch.testing.assert_close(block(x, cliques([6])), x + block.mlp(block.norm2(x)))
    assert LayerScale(3, 1e-5).gamma.tolist() == pytest.approx([1e-5] * 3)


def test_paths_drop_by_image_by_the_generator_and_keep_their_mean(generator) -> None:
    drop, x = DropPath(0.25), torch.ones(4000 * 3, 2)
    out = drop(x, 4000, generator).view(4000, 6)
    assert (out == out[:, :1]).all()
    values, counts = out[:, 0].unique(return_counts=True)
    torch.testing.assert_close(values, torch.tensor([0, 4 / 3]))
    assert abs(counts[0] / 4000 - 0.25) < 0.03 and torch.equal(drop.eval()(x, 4000), x)
    block, x, nb = Block(Attention(8, 2), drop_path=0.5), torch.randn(32, 8), cliques([4] * 8)

    def out(seed: int) -> torch.Tensor:
        return block(x, nb, images=8, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(out(1), out(1)) and not torch.equal(out(1), out(2))


def test_compiled_paths_drop_in_batches_of_any_size() -> None:
    drop = DropPath(0.5)
    compiled = torch.compile(lambda x: drop(x, len(x) // 2), fullgraph=True, backend="aot_eager")
    for images in (2, 3, 5):
        torch.manual_seed(0)
        expected = drop(torch.ones(2 * images, 4), images)
        torch.manual_seed(0)
        assert torch.equal(compiled(torch.ones(2 * images, 4)), expected)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="p: got 1, expected a probability in"):
        DropPath(1)
    with pytest.raises(ValueError, match="images: got 4, expected a divisor of the 6 nodes"):
        DropPath(0.5)(torch.zeros(6, 1), 4)
