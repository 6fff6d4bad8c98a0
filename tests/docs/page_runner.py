"""Runs scripts in processes that have loaded torch already: it forks for each line `SCRIPT` that it reads.

What a script prints is in SCRIPT.out; the answer is one line with its exit code. It begins with an empty program, as a
script that a user starts does: nothing but modules is loaded here, and there are no threads.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path

LOADED = ("torch", "pandas", "sklearn.datasets", "orlomo.training", "orlomo.launching", "orlomo.resuming")


def run(script: Path) -> None:
    """Become the process of this script, in its folder."""
    os.chdir(script.parent)
    sys.stdin.close()
    sys.argv[:] = [str(script)]
    sys.path[0] = str(script.parent)
    out = os.open(f"{script}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    runpy.run_path(str(script), run_name="__main__")


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            try:
                run(Path(line.rstrip("\n")))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.exit(0)  # as a script ends: what is registered for that is called
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
