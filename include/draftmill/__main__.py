"""`python -m draftmill VERB`, and the entry point of the zipapp."""

import sys

from draftmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
