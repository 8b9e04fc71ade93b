import pytest

from graphtheory.patterns import UniformNodes


@pytest.mark.parametrize(
    ("count", "share", "message"),
    [
        (3, 0.5, "count: got 3 together with share=0.5"),
        (0, None, "count: got 0, expected a whole number of nodes, at least 1"),
        (2.5, None, "count: got 2.5"),
        (None, 0.0, "share: got 0.0, expected a share of the nodes"),
        (None, 1.1, "share: got 1.1"),
    ],
)
def test_sizes_out_of_range(count: int | None, share: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UniformNodes(count, share)


def test_size_of_a_sample() -> None:
    assert UniformNodes().size(7) == 4 and UniformNodes(share=0.01).size(7) == 1
    assert UniformNodes(30).size(7) == 30
    with pytest.raises(ValueError, match="count: got 30, expected at most the 7 sources"):
        UniformNodes(30).size(7, distinct=True)
