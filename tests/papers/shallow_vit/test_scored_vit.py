import torch

from graphtheory.models import ReducedViT, vit_pico
from graphtheory.nn import Keep
from graphtheory.nn.reduce import Oracle
from graphtheory.papers.shallow_vit.scored_vit import ScoredViT


def test_the_last_channel_decides_which_patches_are_seen(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    vit = ReducedViT(vit_pico(out_channels=5, image_size=16), {0: Keep(6, Oracle())})
    images = torch.randn(3, 4, 16, 16, generator=generator)
    rank = torch.rand(3, 16, generator=generator).argsort(1).view(3, 1, 4, 4).float()
    images[:, 3:] = rank.repeat_interleave(4, 2).repeat_interleave(4, 3)
    model = ScoredViT(vit).eval()
    score = model.score(images)
    assert score.shape == (3, 17) and bool((score[:, 0] == 0).all())
    torch.testing.assert_close(score[:, 1:], rank.flatten(1))
    torch.testing.assert_close(model(images), vit.head(vit.tokens(images[:, :3], score=score)))
    kept = torch.zeros(3, 17).scatter(1, 1 + score[:, 1:].topk(6, 1).indices, 1)[:, 1:]
    seen = kept.view(3, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3).bool()
    hidden = images.clone()
    hidden[:, :3][~seen.expand(-1, 3, -1, -1)] = 9.0
    torch.testing.assert_close(model(hidden), model(images))
