"""The models that `bench` and `train` know by name."""
