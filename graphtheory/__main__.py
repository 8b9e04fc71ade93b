"""`python -m graphtheory` is the same as `graphtheory`."""

from graphtheory.lab import script

script()
