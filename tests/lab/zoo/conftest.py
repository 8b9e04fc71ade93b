from tests.models.conftest import tiny

__all__ = ["tiny"]
