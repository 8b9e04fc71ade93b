"""In-context learning of functions: a GPT reads examples of a new function and continues them."""

import numpy as np
import torch

from graphtheory.papers.icl.in_context import (
    Curriculum,
    Ramp,
    baseline,
    predictions,
    train_in_context,
)
from graphtheory.vision.models import gpt

DIM, POINTS, STEPS = 2, 8, 100
draw = torch.Generator().manual_seed(0)


def sample(prompts: int, points: int, dim: int, generator: torch.Generator) -> tuple:
    """Each prompt has a function of its own, x_1 + b with an offset b ~ N(0, 4).

    Members of `papers.icl.prompts`, such as `Linear().prompts`, are taken in the same
    place; to
    learn them takes tens of thousands of steps.
    """
    rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
    x = rng.normal(size=(prompts, points, dim))
    return x, x[..., 0] + 2 * rng.normal(size=(prompts, 1))


# Tokens are x_1, f(x_1), x_2, ...; the loss is at every x. Points and dimensions grow.
model = gpt(32, depth=2, heads=4, in_channels=DIM, out_channels=1, length=2 * POINTS)
model.reset_parameters(draw)
grow = Curriculum(dims=Ramp(1, DIM, every=50), points=Ramp(4, POINTS, add=2, every=40))
train_in_context(
    model, sample, grow, steps=STEPS, generator=draw, lr=3e-3,
    progress=lambda step, loss: print(f"step {step}: loss {loss:.3f}") if step % 50 == 0 else None,
)  # fmt: skip

# On new prompts, the squared error after so many examples; outputs have the variance 5.
x, y = sample(200, POINTS, DIM, draw)
with torch.no_grad():
    found = {"GPT": predictions(model, x, y)}
for name in ("least squares", "averaging", "3 nearest"):
    found[name] = baseline(name, x, y)
print("examples         " + "".join(f"{k:9}" for k in range(POINTS)))
for name, values in found.items():
    error = (values - torch.from_numpy(y)).square().mean(0)
    print(f"{name:17}" + "".join(f"{value:9.2f}" for value in error))
