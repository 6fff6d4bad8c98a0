"""Runs killed at some of their operations on files; `make chaos` kills them at all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "fault_matrix.py"


def test_killed_anywhere_a_run_continues_and_is_the_same() -> None:
    command = [SCRIPT, "simulated", "forgotten", "processes", "--sample", "30", "--twice", "5", "--seed", "1"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left in the temporary folder: nothing" in done.stdout
    assert "FAILED" not in done.stdout
