import torch

from graphtheory.vision.models import ClassToken, DistilledToken, MeanToken


def test_each_reads_its_tokens() -> None:
    tokens = torch.randn(2, 5, 4)
    assert torch.equal(ClassToken()(tokens), tokens[:, 0])
    assert torch.equal(MeanToken()(tokens), tokens.mean(1))
    head = DistilledToken.linear(4, 3)
    output, distilled = head.both(tokens)
    torch.testing.assert_close(output, head.output(tokens[:, 0]))
    torch.testing.assert_close(distilled, head.distilled(tokens[:, 1]))
    torch.testing.assert_close(head(tokens), (output + distilled) / 2)
    assert (MeanToken.prefix, ClassToken.prefix, DistilledToken.prefix) == (0, 1, 2)
