"""Rules for tokens in models of other libraries, and their form in a config that is saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import nn

from graphtheory.patterns import TopK
from graphtheory.vision.nn import (
    AveragePool,
    Centers,
    Fuse,
    Keep,
    LearnedCenters,
    MaskPool,
    MaxPool,
    Merge,
    MultiScale,
)
from graphtheory.vision.nn.reduce import Attended, Random, Reducer


@dataclass(frozen=True)
class Reduce:
    """Token reduction in given layers, between attention and MLP as EViT and ToMe do.

    Args:
        after: Maps the number of a layer, from 1, to the rule applied after its attention; or a
            list of rules, the first for layer 1, such as ``decreasing(13, 12)``; a single rule is
            applied in every layer.
        proportional: Whether attention is proportional: the log of the number of tokens that a
            token represents is added to its logits. None means if a rule is a `Merge`.
        restore: Whether every token is there again after the last layer, with the values of the
            one that represents it, for heads that need all of them. None means if attention is
            proportional, all rules merge or fuse, and a head averages the patches: they count in
            the mean by the number of tokens that they represent, as in ToMe.
        inside: Whether tokens are reduced between attention and MLP, as published; False means
            after the layer.

    Example:
        >>> Reduce({4: Merge(8)}).counts_sizes
        True
    """

    after: Mapping[int, Reducer] | Sequence[Reducer] | Reducer
    proportional: bool | None = None
    restore: bool | None = None
    inside: bool = True

    @property
    def counts_sizes(self) -> bool:
        """Whether attention is proportional to sizes."""
        if self.proportional is not None:
            return self.proportional
        return any(isinstance(rule, Merge) for rule in self._given(1).values())

    def restores(self, averages: bool) -> bool:
        """Whether tokens are restored, in a model whose head averages the patches or not.

        Raises:
            ValueError: If they have to be, and a rule drops some.
        """
        dropping = [rule for rule in self._given(1).values() if isinstance(rule, Keep)]
        if self.restore and dropping:
            raise ValueError(f"restore: {dropping[0]} drops tokens, expected Merge or Fuse")
        if self.restore is not None:
            return self.restore
        return averages and self.counts_sizes and not dropping

    def rules(self, layers: int) -> dict[int, Reducer]:
        """The rule in each layer that has one.

        Raises:
            TypeError: If a value is not a rule.
            ValueError: If a layer of that number does not exist, or a rule reads the `score` of an
                oracle, which a model does not have.
        """
        rules = self._given(layers)
        wrong = [i for i in rules if i not in range(1, layers + 1)]
        if wrong:
            raise ValueError(f"after: got layers {wrong}, expected 1..{layers}")
        for rule in rules.values():
            if not isinstance(rule, Reducer):
                raise TypeError(f"after: got {type(rule).__name__}, expected Keep, Fuse or Merge")
            if rule.needs == "score":
                raise ValueError(f"after: {rule} reads a score, expected a rule by attention")
        return rules

    def _given(self, layers: int) -> dict[int, Reducer]:
        if isinstance(self.after, Reducer):
            return dict.fromkeys(range(1, layers + 1), self.after)
        if isinstance(self.after, Mapping):
            return dict(self.after)
        if not isinstance(self.after, Sequence):
            kind = type(self.after).__name__
            raise TypeError(f"after: got {kind}, expected a rule, a list of them or layer -> rule")
        return dict(enumerate(self.after, 1))


@dataclass(frozen=True, eq=False)
class Semantic:
    r"""Semantic tokens in place of patches, computed by two of the model's own layers.

    .. math:: S_1 = \operatorname{Layer}(P; X), \qquad
        S_2 = \operatorname{Layer}(S_1 + G; [S_1, X])

    Class and distillation tokens are both queries and keys in both layers. Fine-tune a model that
    was not trained with semantic tokens. The centers and G, a vector per token initialized to 0,
    become a submodule of the model, ``base_model.semantic``.

    In a Swin this applies to the deepest stage, after its first `base` blocks and without windows
    or relative position biases. Its last block restores the patches, as in STViT-R, :math:`X' =
    \operatorname{Layer}(X; S)`, so that later stages and heads have the whole grid.

    Args:
        tokens: M, a square number, for average pooling; or `Centers`, such as `MaskPool`.
        base: Number of layers on the patches before; in a Swin, of the deepest stage.
        with_global: Whether to learn G.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2. Differs: class tokens are kept; `models.stvit_deit_small` is the original.
    """

    tokens: int | Centers = 16
    base: int = 4
    with_global: bool = True


What = TopK | Reduce | Semantic | Reducer | Mapping[int, Reducer] | Sequence[Reducer]


def as_rule(what: What) -> TopK | Reduce | Semantic:
    """What the `apply` of a library was given, with rules for tokens in a `Reduce`.

    Raises:
        TypeError: If it is something else.
    """
    if isinstance(what, (Reducer, Mapping, list, tuple)):
        return Reduce(what)
    if not isinstance(what, (TopK, Reduce, Semantic)):
        expected = "expected TopK(...), Keep, Fuse, Merge, Reduce or Semantic"
        raise TypeError(f"what: got {type(what).__name__}, {expected}")
    return what


# What a config can name; each keeps the arguments of its constructor under their names.
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        TopK, Reduce, Semantic, Keep, Fuse, Merge, Attended, Random,
        AveragePool, MaxPool, MaskPool, MultiScale, LearnedCenters,
    )
}  # fmt: skip


def encoded(what: Any) -> Any:
    """A rule as an entry of a config, for JSON.

    Raises:
        ValueError: If the rule holds tensors or is of a class that is not the package's own.
    """
    if what is None or isinstance(what, (bool, int, float)):
        return what
    if isinstance(what, (list, tuple, nn.ModuleList)):
        return [encoded(part) for part in what]
    if isinstance(what, Mapping):
        return {"layers": [[number, encoded(rule)] for number, rule in what.items()]}
    kind = type(what)
    if kind not in _KINDS.values():
        known = ", ".join(_KINDS)
        raise ValueError(f"what: a {kind.__name__} cannot be saved in a config, expected {known}")
    given = {name: encoded(getattr(what, name)) for name in signature(kind).parameters}
    return {"kind": kind.__name__, **given}


def decoded(entry: Any) -> Any:
    """The rule of an entry of a config.

    Raises:
        ValueError: If it names a rule that does not exist.
    """
    if isinstance(entry, list):
        return [decoded(part) for part in entry]
    if not isinstance(entry, dict):
        return entry
    if "layers" in entry:
        return {number: decoded(rule) for number, rule in entry["layers"]}
    given = {name: decoded(value) for name, value in entry.items() if name != "kind"}
    if entry["kind"] not in _KINDS:
        known = ", ".join(_KINDS)
        raise ValueError(f"config.graphtheory: names {entry['kind']!r}, expected {known}")
    return _KINDS[entry["kind"]](**given)
