"""Chapter 6 and appendix E, figure by figure: settings that were fixed before any test seed."""

from __future__ import annotations

from dataclasses import replace

from graphtheory.papers.icl.baselines import BASELINES
from graphtheory.papers.icl.errors import ErrorStudy, Exam
from graphtheory.papers.icl.gpt import GptLearner, GptStudy
from graphtheory.papers.icl.growth import CoverStudy, GrowthStudy
from graphtheory.papers.icl.inside import RULES, MechanismStudy, PruneStudy
from graphtheory.papers.icl.training import LINEAR, ROOT, Learner

IclStudy = ErrorStudy | GptStudy | MechanismStudy | PruneStudy | GrowthStudy | CoverStudy

LEARNER = Learner()
"""Printed: d_x = d_y = 30, beta = 3, K = 0.5, K' = 5, M1 = 6, M2 = 24, alpha = 0.8, l_tr = 20,
m_a = m_b = 60. Not printed: m, eta, B, T, l_ts, delta within (0, 0.2], the norm of q, here 1. Step
sizes are those of the least loss on unseen tasks in the domain in "steps-6", whose seeds no figure
has; delta = 0.1 is the middle of its range, and figure 6.3a has its end, 0.2, too."""
_MOST = 1.28  # S_1 with a = b = 0.64
_S_1 = (-0.6, 0.0, 0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, _MOST)
_LENGTHS = (3, 5, 8, 12, 18, 27, 40, 60)
_FEW = (5, 10, 15, 20, 30, 40)
_SHARES = (0.2, 0.4, 0.6, 0.8)
_RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def _domains(alphas: tuple[float, ...], lengths: tuple[int, ...]) -> tuple[Exam, ...]:
    return tuple(
        Exam(alpha, length, s_1) for s_1 in (None, _MOST) for alpha in alphas for length in lengths
    )


_PRUNED = replace(LEARNER, alpha=0.6)
_GPT = GptLearner(steps=1000, step_size=3e-3)
"""Printed: 3 layers, 2 heads, U = 4. Not printed: all else; the step size is the one of the least
loss in the domain in "steps-6-gpt"."""
_NO_NORM = replace(_GPT, norm=False)
_ETAS = {LINEAR: (1.0, 2.0, 4.0, 8.0), ROOT: (0.1, 0.3, 1.0, 3.0)}
STUDIES: dict[str, IclStudy] = {
    "steps-6": ErrorStudy(
        tuple(
            replace(LEARNER, scale=scale, delta=delta, step_size=eta)
            for scale, etas in _ETAS.items()
            for delta in (0.1, 0.2)
            for eta in etas
        ),
        (Exam(0.8, 20), Exam(0.8, 20, _MOST)),
        seeds=5,
        first=1000,
    ),
    "fig-6-2": MechanismStudy(
        replace(LEARNER, steps=400), (Exam(0.8, 20), Exam(0.8, 20, _MOST)), every=10
    ),
    "fig-6-3a": ErrorStudy(
        (
            LEARNER,
            replace(LEARNER, delta=0.2, step_size=8.0),
            replace(LEARNER, scale=ROOT, step_size=1.0),
        ),
        tuple(Exam(0.8, 20, s_1) for s_1 in (None, *_S_1)),
    ),
    "steps-6-gpt": GptStudy(
        tuple(
            replace(learner, step_size=eta)
            for learner in (_GPT, _NO_NORM, replace(_GPT, tokens="in turn"))
            for eta in (3e-4, 1e-3, 3e-3)
        ),
        (Exam(0.8, 20), Exam(0.8, 20, _MOST)),
        seeds=1,
        first=1000,
    ),
    "fig-6-3a-gpt": GptStudy(
        (_GPT, _NO_NORM),
        tuple(Exam(0.8, 20, s_1) for s_1 in (None, *_S_1)),
    ),
    "fig-6-3b": ErrorStudy((LEARNER,), _domains(_SHARES, _LENGTHS)),
    "fig-6-4a": ErrorStudy((LEARNER,), _domains((0.8,), _FEW), BASELINES, prompts=200),
    "fig-6-4b": ErrorStudy((LEARNER,), _domains((0.6,), _FEW), BASELINES, prompts=200),
    "fig-6-5a": PruneStudy(
        (_PRUNED, replace(_PRUNED, width=60)), (Exam(0.6, 20, _MOST),), RULES, _RATES
    ),
    "fig-6-5b": PruneStudy(
        (_PRUNED,), tuple(Exam(alpha, 20, _MOST) for alpha in _SHARES[1:]), RULES[:1], _RATES
    ),
    "fig-e-1": GrowthStudy(
        LEARNER, (0.2, 0.3, 0.45, 0.65, 1.0), (1, 2, 3, 5, 8, 12, 18), Exam(0.6, 20)
    ),
    "fig-e-2": CoverStudy(LEARNER, (4, 6, 8), (-3, -2, -1, 0, 1, 3), Exam(0.6, 20)),
}


def quick(given: IclStudy) -> IclStudy:
    """The same with few networks, steps and tests, for a first look."""
    if isinstance(given, ErrorStudy):
        tests = given.tests if not given.methods else given.tests[::3]
        learners = tuple(replace(learner, steps=300) for learner in given.learners[:2])
        return replace(
            given, learners=learners, tests=tests, methods=given.methods[:3], prompts=100, seeds=2
        )
    if isinstance(given, GptStudy):
        small = tuple(replace(learner, dim=32, steps=60) for learner in given.learners[:2])
        return replace(given, learners=small, prompts=100, seeds=2)
    if isinstance(given, PruneStudy):
        learners = tuple(replace(learner, steps=300) for learner in given.learners)
        return replace(given, learners=learners, rates=given.rates[::3], prompts=300, seeds=2)
    learner = replace(given.learner, steps=300)
    if isinstance(given, MechanismStudy):
        return replace(given, learner=learner, every=50, seeds=2)
    if isinstance(given, GrowthStudy):
        return replace(
            given, learner=learner, alphas=given.alphas[2::2], lengths=given.lengths[::2],
            every=10, prompts=300, seeds=2,
        )  # fmt: skip
    return replace(
        given, learner=learner, relevant=given.relevant[:2], beyond=(-1, 0), prompts=500, seeds=2
    )
