"""Where an extra is not installed, its modules are not searched for docstrings to run."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["graphtheory/ops/backends/*triton*.py"]
