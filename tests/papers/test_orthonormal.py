import pytest
import torch

from graphtheory.papers.shallow import orthonormal


def test_rows_are_orthonormal_and_no_more_than_dimensions(generator: torch.Generator) -> None:
    rows = orthonormal(4, 4, generator)
    torch.testing.assert_close(rows @ rows.t(), torch.eye(4))
    assert not torch.equal(rows, orthonormal(4, 4, generator)) and rows.is_contiguous()
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"count: got {count}, expected 1 to dim=4"):
            orthonormal(count, 4, generator)
