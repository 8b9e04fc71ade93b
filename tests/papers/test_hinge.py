"""Codes of classes and their hinge loss, against the thesis's four classes."""

import pytest
import torch

from graphtheory.papers.hinge import class_codes, coded_hinge, decode_class


def test_four_classes_are_those_of_b_228_to_b_231() -> None:
    assert class_codes(4).tolist() == [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    assert class_codes(2).tolist() == [[1], [-1]]
    assert class_codes(5).shape == (5, 3) and len(class_codes(5).unique(dim=0)) == 5


def test_loss_is_b_232_and_its_gradient() -> None:
    codes, target = class_codes(4), torch.tensor([0, 1, 2, 3, 1])
    output = torch.randn(5, 2, dtype=torch.float64).requires_grad_()
    wanted = [max(1 - sum(y * f for y, f in zip(codes[c].tolist(), row, strict=True)), 0.0)
              for c, row in zip(target.tolist(), output.tolist(), strict=True)]  # fmt: skip
    loss = coded_hinge(output, target, codes)
    assert loss.tolist() == pytest.approx(wanted)
    loss.sum().backward()
    active = torch.tensor(wanted)[:, None] > 0
    torch.testing.assert_close(output.grad, torch.where(active, -codes[target].double(), 0.0))


def test_a_class_is_decoded_from_its_code() -> None:
    for classes in (2, 3, 4, 7):
        codes = class_codes(classes)
        assert decode_class(codes.float() * 0.1, codes).tolist() == list(range(classes))


def test_wrong_input_is_refused_in_words() -> None:
    codes = class_codes(4)
    with pytest.raises(ValueError, match="num_classes: got 1"):
        class_codes(1)
    with pytest.raises(ValueError, match=r"output: shape \(3, 4\), expected \[N, 2\]"):
        coded_hinge(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), codes)
    with pytest.raises(ValueError, match=r"target: shape \(2,\), expected \[3\]"):
        coded_hinge(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), codes)
    with pytest.raises(IndexError, match=r"expected classes in 0\.\.3"):
        coded_hinge(torch.zeros(1, 2), torch.tensor([4]), codes)
