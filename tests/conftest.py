"""Shared by all tests: helper modules beside the tests, one thread of arithmetic, a switch for golden files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent / "methods"))
sys.path.append(str(Path(__file__).parent))
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-golden", action="store_true", help="write the golden histories anew")
