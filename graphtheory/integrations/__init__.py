"""Models of other libraries on the core."""
