"""The Python on the pages runs as it is written, page by page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from documented import PAGES, ROOT, blocks, name_of, python_of

WITH_PYTHON = [page for page in PAGES if python_of(page)]

REPLAYS = {
    "docs/how-to/buffers.md": 1,
    "docs/how-to/own-method.md": 2,
    "docs/how-to/own-optimizer.md": 2,
    "docs/how-to/precision-and-groups.md": 3,
    "docs/how-to/resume-and-change.md": 3,
}
"""How often a page prints that a replay agrees."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        assert block.is_marked_well, f"{block.page}: <!-- {block.mark} --> is no mark (see tests/docs/documented.py)"


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(python_of(page))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agree, bit for bit (") >= REPLAYS.get(name_of(page), 0)


def test_the_guides_delayed_nesterov_is_the_built_in_one() -> None:
    """With the built-in's worker rule and without `spread`, both fold alike."""
    import torch

    import orlomo

    names: dict[str, type[orlomo.Method]] = {}
    exec(python_of(ROOT / "docs/how-to/own-method.md").partition("run = ")[0], names)
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
