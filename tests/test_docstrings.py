"""Who has a docstring, and what its first line says."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

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


def test_public_methods_that_override_none_have_docstrings() -> None:
    found = []
    for name in NAMES:
        try:
            module = import_module(name)
        except ModuleNotFoundError as missing:  # of an extra that is not installed
            assert missing.name and not missing.name.startswith("graphtheory")
            continue
        kinds = [k for k in vars(module).values() if inspect.isclass(k) and k.__module__ == name]
        found += [one for k in kinds if k.__name__[0] != "_" for one in undocumented(k)]
    assert found == []


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
