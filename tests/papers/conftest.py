from tests.bench.conftest import listen, small_space  # noqa: F401  (fixtures)
