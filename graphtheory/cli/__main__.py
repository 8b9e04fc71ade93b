"""`python -m graphtheory.cli` is the same as `graphtheory`."""

import sys

from graphtheory.cli.main import main

sys.exit(main())
