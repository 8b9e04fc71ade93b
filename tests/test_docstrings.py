"""Who has a docstring, and what its first line says."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
NAMES = [
    ".".join(PurePosixPath(path.relative_to(ROOT)).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "graphtheory").rglob("*.py"))
    if path.name != "__main__.py"
]


def undocumented(kind: type) -> Iterator[str]:
    """Public methods without a docstring that override none of a base class."""
    for name, value in vars(kind).items():
        method = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if name.startswith("_") or not inspect.isfunction(method) or method.__doc__:
            continue
        own = method.__module__ == kind.__module__ and method.__name__ == name  # no field's lambda
        if own and not any(hasattr(base, name) for base in kind.__mro__[1:]):
            yield f"{kind.__name__}.{name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_public_method_that_overrides_none_has_a_docstring(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"needs {missing.name}")
    kinds = [k for k in vars(module).values() if inspect.isclass(k) and k.__module__ == name]
    assert [one for kind in kinds if kind.__name__[0] != "_" for one in undocumented(kind)] == []


def test_planted_method_is_found() -> None:
    class Base:
        def known(self) -> None:
            """Says what it does."""

    class Child(Base):
        def known(self) -> None: ...
        def new(self) -> None: ...
        @property
        def fact(self) -> int:
            return 1

    assert list(undocumented(Child)) == ["Child.new", "Child.fact"]
