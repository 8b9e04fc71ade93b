import pytest
import torch

from graphtheory.models.stack import FeatureDropout


@pytest.fixture
def x(generator: torch.Generator) -> torch.Tensor:
    x = torch.rand(200, 50, generator=generator) + 0.1
    return torch.where(torch.rand(x.shape, generator=generator) < 0.2, x, 0)


def test_dense_features_are_torch_s_own_dropout_of_probabilities_in_range(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    found = FeatureDropout(0.3)(x)
    torch.manual_seed(0)
    assert torch.equal(found, torch.nn.functional.dropout(x, 0.3))
    with pytest.raises(ValueError, match="dropout probability"):
        FeatureDropout(1.5)


def test_sparse_features_keep_their_pattern_and_scale_up_anew_in_each_step(x: torch.Tensor) -> None:
    sparse = x.to_sparse_csr()
    out = FeatureDropout(0.25)(sparse)
    assert out.layout == torch.sparse_csr and out.shape == sparse.shape
    assert torch.equal(out.crow_indices(), sparse.crow_indices())
    assert torch.equal(out.col_indices(), sparse.col_indices())
    kept = out.values() != 0
    torch.testing.assert_close(out.values()[kept], sparse.values()[kept] / 0.75)
    assert abs(float(kept.float().mean()) - 0.75) < 0.05  # 2000 entries: 5 standard deviations
    drop, sparse = FeatureDropout(0.5), x.to_sparse_csr()
    before = sparse.values().clone()
    assert not torch.equal(drop(sparse).values(), drop(sparse).values())
    assert torch.equal(sparse.values(), before)
    for nothing in (FeatureDropout(0.0), FeatureDropout(0.0).eval(), drop.eval()):
        assert nothing(sparse) is sparse
