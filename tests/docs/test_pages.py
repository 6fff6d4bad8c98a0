"""The Python on the pages runs as it is written, page by page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
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

PRINTED = {"docs/how-to/metrics.md": r"(0\.[5-9]\d*|1\.0) (0\.[5-9]\d*|1\.0)"}
"""What a page prints, where that can be wrong without an error."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        assert block.is_marked_well, f"{block.page}: <!-- {block.mark} --> is no mark (see tests/docs/documented.py)"


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """Runs the scripts whose names it is sent."""
    command = [sys.executable, Path(__file__).parent / "page_runner.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_a_page_runs(page: Path, tmp_path: Path, runner: subprocess.Popen[str]) -> None:
    assert runner.stdin is not None
    assert runner.stdout is not None
    script = tmp_path / "page.py"
    script.write_text(python_of(page))
    print(script, file=runner.stdin, flush=True)
    code, printed = runner.stdout.readline(), (tmp_path / "page.py.out").read_text()
    assert code == "0\n", printed
    assert printed.count("agree, bit for bit (") >= REPLAYS.get(name_of(page), 0)
    assert re.search(PRINTED.get(name_of(page), ""), printed), printed


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
