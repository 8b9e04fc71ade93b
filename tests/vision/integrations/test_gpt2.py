"""GPT-2 of `transformers`, with random weights, is the oracle of ours."""

from typing import Any

import pytest
import torch
from torch import nn

from graphtheory.vision.integrations.transformers import _load, from_huggingface
from graphtheory.vision.models import gpt
from tests.vision.integrations.conftest import drawn

hf = pytest.importorskip("transformers")

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 20, "vocab_size": 31}


def made(kind: type = hf.GPT2LMHeadModel, **options: Any) -> nn.Module:
    """A model in which every weight differs from what the constructor gave."""
    config = hf.GPT2Config(**SIZES | {"bos_token_id": 0, "eos_token_id": 0} | options)
    return drawn(kind(config))


@pytest.mark.parametrize(
    "options", [{}, {"tie_word_embeddings": False, "activation_function": "gelu", "n_inner": 24}]
)
def test_logits_are_equal(options: dict[str, Any]) -> None:
    theirs = made(**options)
    ours, ids = from_huggingface(theirs), torch.randint(31, (3, 20))
    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_padding_is_masked_and_the_base_model_gives_the_hidden_state() -> None:
    theirs = made()
    ours, ids = from_huggingface(theirs), torch.randint(31, (3, 20))
    right = (torch.arange(20) < torch.tensor([[20], [7], [1]])).long()
    for mask in (right, right.flip(1)):
        places = (mask.cumsum(1) - 1).clamp(min=0)
        wanted = theirs(ids, attention_mask=mask, position_ids=places).logits[mask.bool()]
        torch.testing.assert_close(ours(ids, mask)[mask.bool()], wanted, atol=1e-5, rtol=1e-5)
    theirs, ids = made(hf.GPT2Model), torch.randint(31, (2, 9))
    found = from_huggingface(theirs)(ids)
    torch.testing.assert_close(found, theirs(ids).last_hidden_state, atol=1e-5, rtol=1e-5)


def test_training_goes_on_with_tied_weights() -> None:
    theirs = made(attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0).train()
    ids = torch.randint(31, (2, 9))
    ours = from_huggingface(theirs)
    assert ours.training and ours.head.weight is ours.embed.weight
    ours(ids).square().mean().backward()
    theirs(ids).logits.square().mean().backward()
    found = ours.embed.weight.grad, ours.blocks[0].mlp.fc1.weight.grad
    layers = theirs.transformer
    wanted = layers.wte.weight.grad, layers.h[0].mlp.c_fc.weight.grad.t()
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_what_we_do_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"embd_pdrop: .* in training mode"):
        from_huggingface(made().train())
    with pytest.raises(ValueError, match="inverse_layer_idx"):
        from_huggingface(made(scale_attn_by_inverse_layer_idx=True))
    with pytest.raises(ValueError, match=r"missing: .*position\.table"):
        state = {n: t for n, t in made().state_dict().items() if "wpe" not in n}
        _load(gpt(16, 2, 2, vocabulary=31, length=20), state)
