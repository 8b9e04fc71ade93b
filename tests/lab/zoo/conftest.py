from tests.models.conftest import tiny  # noqa: F401  (a fixture)
