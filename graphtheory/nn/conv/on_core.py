"""Base classes of the drop-in layers, and checks of what they are given."""

import copy
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, overload

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.utils import is_sparse

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import innermost_transform
from graphtheory.nn.conv.first_calls import is_first
from graphtheory.nn.conv.sparse_features import may_change
from graphtheory.ops.derivatives import needs_grad
from graphtheory.ops.edge import Reduction

_STAGES = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_ASKING = (
    "_explain",
    *(f"_{stage}_forward{pre}_hooks" for stage in _STAGES for pre in ("_pre", "")),
)
_METHODS = (*_STAGES, "update", "edge_updater")
REDUCTIONS: dict[type, Reduction] = {
    SumAggregation: "sum", MeanAggregation: "mean", MaxAggregation: "max", MinAggregation: "min",
}  # fmt: skip
Inlined = dict[str, tuple[type, ...]]


class OnCore(MessagePassing):
    """Mixin of a drop-in layer; list it before PyG's layer of the same name.

    Parameters, initialization, state dict and representation are PyG's own. `forward` calls `ops`
    and materializes no messages, unless an explainer (`conv.explain`), a hook on propagation,
    messages, aggregation or edge updates, `torch.onnx.export` or `torch.jit.trace` asks for them,
    or a method or a submodule that `ops` replaces is no longer PyG's own: then PyG's message
    passing runs, with the same result. TorchScript compiles PyG's layer.
    """

    # PyG generates a fast `propagate` per class, without support for explainers, and keeps the
    # inherited one for them. That must be MessagePassing's, not the one generated for PyG's layer.
    propagate = MessagePassing.propagate
    decomposes: ClassVar[bool] = False  # computes `decomposed_layers`
    flows_back: ClassVar[bool] = True  # computes `flow="target_to_source"`
    ops_drop: ClassVar[bool] = True  # weights, with a probability below 1
    node_axis: ClassVar[int | None] = None  # the only `node_dim` that it computes, if there is one
    # submodules that it does not call as PyG does, and the kinds that each may have
    inlined: ClassVar[Inlined] = {"lin_edge": (Linear,), "aggr_module": (SumAggregation,)}
    # edges, and edges times channels, from which it pays to sort edges that one call uses
    pays_from: ClassVar[tuple[int, int]] = (4_000, 0)
    # the same product on a GPU, which reads 16 MiB about as fast as its host launches a kernel
    pays_on_gpu: ClassVar[int] = 2**22
    _pyg: type | None = None  # what a layer was before `accelerate`
    _again: Any = None  # the last call of a layer as one function
    arguments: ClassVar[tuple[str, ...]] = ()  # of a `forward` that may be this function

    if TYPE_CHECKING:  # torch says Any

        @overload
        def __call__(
            self, *args: Any, return_attention_weights: Literal[True], **kwargs: Any
        ) -> tuple[Tensor, Any]: ...
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The result, as `__call__`; by PyG's layer if few edges are new to it."""
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again.at_once(self, args, kwargs)
            if found is not None:
                return found
        if self._pyg is None or not self._is_first(*args, **kwargs):
            return super().__call__(*args, **kwargs)
        theirs: Any = object.__new__(self.at_new_edges(self._pyg))
        object.__setattr__(theirs, "__dict__", vars(self))  # the same parameters and state
        hooks = self._forward_pre_hooks  # and those before the backward pass; there are no others
        may = hooks and may_change(hooks, (*args, *kwargs.values()))
        hooked = may or self._backward_pre_hooks
        return (theirs if hooked else theirs.forward)(*args, **kwargs)

    if not TYPE_CHECKING:
        __call__ = call

    @staticmethod
    def at_new_edges(kind: type) -> type:
        """The class that computes a call on few new edges, of PyG's."""
        return kind

    @property
    def is_whole(self) -> bool:
        """Whether, without features of edges, a GPU computes it as one function.

        Then few edges are sorted there in one launch, and PyG's layer is no faster on new ones.
        """
        return False

    _is_first = is_first  # whether `call` leaves this call to PyG's layer

    def needs_messages(self) -> bool:
        """Whether only PyG's message passing computes or calls what this call has to."""
        compiling = torch.compiler.is_compiling()
        traced = torch.onnx.is_in_onnx_export() if compiling else torch._C._is_tracing()
        if traced or changed(self, type(self)):
            return True
        apart = self._decomposed_layers != 1 and not self.decomposes
        if apart or (self.flow != "source_to_target" and not self.flows_back):
            return True
        if compiling or not has_global_hooks():
            return False
        parts = (self._modules.get(name) for name in self.inlined if name != "aggr_module")
        return any(part is not None for part in parts)  # counters of operations hook every module

    def for_messages(self, edge_index: Any) -> Any:
        """`edge_index` in a form that PyG accepts; an explainer is refused a `Neighborhood`."""
        if not isinstance(edge_index, Neighborhood):
            return edge_index
        hooks = self._message_forward_hooks.values()
        if self.explain or any(h.__module__.startswith("torch_geometric.explain") for h in hooks):
            raise NotImplementedError(
                f"edge_index: got a Neighborhood in {type(self).__name__}, but explainers of PyG "
                "weigh the edges of an edge list, in its order; pass one to the layer"
            )
        return edge_index.edge_index()

    def __prepare_scriptable__(self) -> MessagePassing:
        """PyG's layer with the same parameters, which `torch.jit.script` compiles instead."""
        kind = pygs_class(self)
        own = type(self).__module__.startswith(f"{__package__}.")
        if kind is MessagePassing or not own:
            why = "a subclass of the drop-in" if kind is not MessagePassing else "no layer of PyG"
            raise NotImplementedError(
                f"torch.jit.script: {type(self).__name__} is {why}, and TorchScript compiles the "
                "layer of PyG in place of a drop-in; torch.compile and torch.export take this one"
            )
        twin: Any = copy.copy(self)
        twin.__class__ = kind
        twin._set_jittable_templates()  # as PyG does when its first layer is made
        return twin

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        """Raise if `layer`, PyG's or this one, has options that `ops` does not compute."""
        if cls.ops_drop:
            check_dropout(getattr(layer, "dropout", 0.0))
        kinds = cls.inlined["aggr_module"]
        if not isinstance(layer.aggr_module, kinds):
            wanted = "'add'" if kinds == (SumAggregation,) else "'sum', 'mean', 'max' or 'min'"
            raise ValueError(f"aggr: got {layer.aggr!r}, expected {wanted}")
        if layer.decomposed_layers != 1 and not cls.decomposes:
            raise ValueError(f"decomposed_layers: got {layer.decomposed_layers}, expected 1")
        if layer.flow != "source_to_target" and not cls.flows_back:
            raise ValueError(f"flow: got {layer.flow!r}, expected the default")
        if cls.node_axis not in (None, layer.node_dim):
            raise ValueError(f"node_dim: got {layer.node_dim}, expected {cls.node_axis}")


def pygs_class(layer: OnCore) -> Any:
    """The class of PyG whose layer a drop-in is."""
    return next(kind for kind in type(layer).__mro__ if not issubclass(kind, OnCore))


Kind = TypeVar("Kind", bound=type)


def checked(kind: Kind) -> Kind:
    """Let a class check the arguments of PyG's constructor before it, and the layer after it."""
    init: Callable[..., None] = kind.__init__  # type: ignore[misc]
    names = list(signature(init).parameters)[1:]
    counts = [name for name in names if name in ("out_channels", "heads")]

    @wraps(init)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(names, args, strict=False)) | kwargs
        if "in_channels" in given:
            check_channels(given["in_channels"])
        check_counts(**{name: given[name] for name in counts if name in given})
        init(self, *args, **kwargs)
        self.check_options(self)

    kind.__init__ = run  # type: ignore[misc]
    return kind


class OwnPropagate(OnCore):
    """Mixin of a layer that keeps PyG's `forward`; list it before PyG's layer.

    A subclass has `_run`, which returns what PyG's `propagate` does, or None where only PyG's can;
    then that one runs, as while an explainer or a hook asks for messages.
    """

    inlined: ClassVar[Inlined] = {"aggr_module": tuple(REDUCTIONS)}

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        raise NotImplementedError

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Keep this `propagate`, which PyG would replace by one that it generates."""

    def _args(self, edge_index: Any, size: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        """What decides a call: the features of both ends if they are one tensor, then the others.

        A subclass tells `again.compute` of them.
        """
        x, *others = given.values()
        x = x[0] if isinstance(x, tuple) and x[0] is x[1] else x
        return x, *others, edge_index, size

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        out = None
        if self._again is not None and not torch.compiler.is_compiling():
            out = self._again(self, *self._args(edge_index, size, kwargs))
        if out is None and not self.needs_messages():
            out = self._run(edge_index, size, kwargs)
        if out is not None:
            return out
        edge_index = self.for_messages(edge_index)
        theirs: Any = MessagePassing.propagate  # that of all layers, and the one PyG generates
        if not self._explain and self._decomposed_layers == 1:
            theirs = getattr(pygs_class(self), "_jinja_propagate", theirs)
        return cast(Tensor, theirs(self, edge_index, size=size, **kwargs))

    # what PyG puts on a layer while it is explained, and afterwards
    _orig_propagate, _jinja_propagate = MessagePassing.propagate, propagate


def reduction_of(layer: MessagePassing, edge_index: Any) -> Reduction | None:
    """How a layer reduces along these edges: by name along a matrix, else by its module."""
    if layer.fuse and is_sparse(edge_index):
        return cast(Reduction, "sum" if layer.aggr == "add" else layer.aggr)
    return REDUCTIONS.get(type(layer.aggr_module))


def kept(x: Tensor, *others: Tensor | None) -> Tensor:
    """What a gradient by x or others reads: a copy, as x may change in place after PyG's layer."""
    asked = innermost_transform() is not None or needs_grad((x, *others))
    return x.clone() if asked else x


def multiplied(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and features in the types of PyG's product: integers as x, the wider for both."""
    if weight.is_complex():
        return weight, x
    if not weight.is_floating_point():
        return weight.to(x.dtype), x
    return weight, widened(x, weight)


def widened(x: Tensor, *others: Tensor) -> Tensor:
    """Features or sums in the type that PyG's products with others have."""
    for other in others:
        x = x.to(torch.promote_types(x.dtype, other.dtype))
    return x


def check_counts(**counts: int) -> None:
    """Raise unless every count is at least 1."""
    for name, count in counts.items():
        if not hasattr(count, "__index__") or count < 1:
            raise ValueError(f"{name}: got {count!r}, expected at least 1, a whole number")


def check_entries(name: str, values: Any, what: str, *shape: int) -> None:
    """Raise unless `values` are a tensor of this shape, with an entry per edge, or `what` it is."""
    if values is not None and not isinstance(values, Tensor):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tensor {list(shape)}")
    got = None if values is None else tuple(values.shape)
    if got != shape:
        raise ValueError(f"{name}: shape {got}, expected one per {what} {list(shape)}")


def check_channels(in_channels: Any) -> None:
    """Raise unless every number of input channels is one, or -1: taken from the first input."""
    for count in in_channels if isinstance(in_channels, (tuple, list)) else (in_channels,):
        if not hasattr(count, "__index__") or count < -1:
            raise ValueError(
                f"in_channels: got {count!r}, expected 0 or more, or -1 to take it from the input"
            )


def check_dropout(dropout: float) -> None:
    """Raise unless `dropout` is a probability below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")


def pair(x: Any, flow: str = "source_to_target") -> tuple[Tensor, Tensor | None]:
    """Features (x_src, x_dst) of source and target nodes; a single tensor is both."""
    if not isinstance(x, Tensor) and not (isinstance(x, (tuple, list)) and len(x) == 2):
        raise TypeError(f"x: got {type(x).__name__}, expected a tensor or a pair of them")
    x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
    if x_src is not x_dst and flow != "source_to_target":
        raise ValueError(f"x: got a pair, expected one tensor with flow={flow!r}")
    for name, features in (("x", x_src), ("x[1]", x_dst)):
        if features is not None and features.dim() != 2:
            raise ValueError(
                f"{name}: shape {tuple(features.shape)}, expected [num_nodes, in_channels]"
            )
    return x_src, x_dst


def two_features(
    x: Any, of_source: Any, of_target: Any, flow: str = "source_to_target"
) -> tuple[Tensor, Tensor]:
    """`pair` for linear maps of both, which need the features of the target nodes."""
    x_src, x_dst = pair(x, flow)
    if x_dst is None:
        raise ValueError("x: got (x_src, None), expected features of the target nodes too")
    of_src, of_dst = getattr(of_source, "in_channels", -1), getattr(of_target, "in_channels", -1)
    check_features("x", x_src, of_src)
    if x_dst is not x_src or of_dst != of_src:
        check_features("x", x_dst, of_dst)
    return x_src, x_dst


def num_targets(x_src: Tensor, x_dst: Tensor | None, size: Any, edge_index: Any) -> int | None:
    """Number of target nodes; None if neither x nor the `size` of an edge list says."""
    rows = None if x_dst is None else x_dst.size(0)
    listed = type(edge_index) is Tensor and edge_index.layout is torch.strided
    if size is None or not (listed or isinstance(edge_index, Neighborhood)):
        return rows  # other graphs have sizes of their own, which PyG takes
    if size[0] != x_src.size(0) or rows not in (None, size[1]):
        known = (x_src.size(0), "any" if rows is None else rows)
        raise ValueError(f"size: got {tuple(size)}, expected {known} as x has rows")
    return size[1]


def check_features(name: str, features: Tensor, channels: int) -> None:
    """Raise unless `features` are floats with `channels` channels; -1 means not known yet."""
    if features.dim() < 2:
        raise ValueError(f"{name}: shape {tuple(features.shape)}, expected [num_nodes, channels]")
    if not features.is_floating_point():
        raise TypeError(f"{name}: dtype {features.dtype}, expected a floating type")
    if channels > 0 and features.size(-1) != channels:
        raise ValueError(
            f"{name}: shape {tuple(features.shape)}, expected {channels} features in the last axis"
        )


def is_plain(linear: torch.nn.Module) -> bool:
    """Whether nobody else sees what goes through a linear map."""
    return type(linear) is Linear and not (is_watched(linear) or has_global_hooks())


def run_inside(x: Tensor, *maps: Any) -> bool:
    """Whether linear maps of x may be part of another function of a GPU: nobody sees them."""
    if x.dim() != 2 or has_global_hooks() or torch.is_autocast_enabled(x.device.type):
        return False
    for one in maps:
        if type(one) is not Linear or is_watched(one) or one._parameters["weight"].dtype != x.dtype:
            return False
    return True


def is_watched(module: torch.nn.Module) -> bool:
    """Whether a call of the module runs a hook of its own or a replaced forward."""
    own = module.__dict__
    lazy = "_hook" in own  # PyG's own, which reads the sizes off the first input
    return bool(
        "forward" in own
        or own["_forward_hooks"]
        or len(own["_forward_pre_hooks"]) > lazy
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
    )


def changed(layer: Any, drop_in: Any) -> str:
    """Why a drop-in would not run all of a layer as PyG does, which may change; "" if it does."""
    own = layer.__dict__
    for name in _ASKING:  # in a compiled call, PyG calls no hooks on messages either
        if own.get(name) and (name == "_explain" or not torch.compiler.is_compiling()):
            return "an explainer or a hook asks for its messages"
    for name in _METHODS:
        if name in own and not is_pygs(own[name], type(layer), drop_in):
            return f"its {name} was replaced"
    for name, kinds in drop_in.inlined.items():
        part = own["_modules"].get(name)
        if part is None:
            continue
        if type(part) not in kinds:
            return f"its {name} is a {type(part).__name__}, not PyG's own"
        for module in part.modules() if part._modules else (part,):
            if is_watched(module):
                return f"a hook on its {name}, which the drop-in does not call as PyG does"
    return ""


def is_pygs(method: Any, *kinds: Any) -> bool:
    """Whether PyG put a `propagate` on a layer, as after an explanation or for a decomposition."""
    own = [getattr(k, f"_{which}_propagate", None) for k in kinds for which in ("orig", "jinja")]
    return getattr(method, "__func__", method) in own
