"""`python -m draftmill.simulator`: the same as `python -m draftmill simulate`."""

import sys

from draftmill.simulator.cli import main

if __name__ == "__main__":
    sys.exit(main())
