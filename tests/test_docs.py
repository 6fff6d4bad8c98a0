"""The guides' code runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def python_of(guide: str) -> str:
    """All Python of a guide, one block after another."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / guide).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert blocks, f"{guide} has no Python in it"
    return "\n".join(blocks)


GUIDES = sorted(f"how-to/{path.name}" for path in (DOCS / "how-to").glob("*.md") if "```python" in path.read_text())

REPLAYS = {
    "how-to/buffers.md": 1,
    "how-to/own-method.md": 2,
    "how-to/own-optimizer.md": 2,
    "how-to/precision-and-groups.md": 3,
    "how-to/resume-and-change.md": 3,
}
"""How often a guide prints that a replay agrees."""


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_runs(guide: str, tmp_path: Path) -> None:
    script = tmp_path / "guide.py"
    script.write_text(python_of(guide))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agree, bit for bit (") >= REPLAYS.get(guide, 0)


def test_the_guides_delayed_nesterov_is_the_built_in_one() -> None:
    """With the built-in's worker rule and without `spread`, both fold alike."""
    import torch

    import orlomo

    names: dict[str, type[orlomo.Method]] = {}
    exec(python_of("how-to/own-method.md").partition("run = ")[0], names)
    guide, own = names["DelayedNesterov"](), orlomo.method("delayed-nesterov")
    servers = [method.server(torch.zeros(5), workers=3) for method in (guide, own)]
    source = torch.Generator().manual_seed(0)
    for server in servers:
        server.start()
    for worker in (0, 1, 1, 2, 0, 0, 2, 1, 1, 0):
        moved = torch.randn(5, generator=source)
        for server in servers:
            index = server.ledger.outstanding[worker].index
            server.receive(orlomo.Report(worker, index, moved.clone()))
    assert torch.allclose(servers[0].params, servers[1].params)
