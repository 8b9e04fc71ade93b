"""Where an extra is not installed, its modules are not searched for docstrings to run."""

from importlib.util import find_spec

_NEEDS = {
    "triton": "graphtheory/ops/backends/triton/*.py",
    "transformers": "graphtheory/integrations/hf_*.py",
}
collect_ignore_glob = [path for name, path in _NEEDS.items() if not find_spec(name)]
