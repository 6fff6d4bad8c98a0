"""`python -m orlomo`: the command `orlomo`."""

import os
import sys
from contextlib import suppress

if not sys.flags.safe_path:
    with suppress(OSError):  # the working directory may be gone
        # Python puts it first, as it does not for `orlomo`: a module in a run folder must not be taken for another.
        sys.path[:1] = [path for path in sys.path[:1] if path != os.getcwd()]

from orlomo.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
