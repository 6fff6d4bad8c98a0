"""`python -m orlomo`: the command `orlomo`."""

import sys

from orlomo.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
