"""Tables: exact floats, cut-off lines, columns by name."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from orlomo import OrlomoError
from orlomo.records.tables import TableWriter, read_table


def test_floats_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    writer = TableWriter(path, ["n", "x", "word", "gap"])
    for n, value in enumerate(values.tolist()):
        writer.append({"n": n, "x": value, "word": "report", "gap": math.nan})
    writer.close()
    columns = read_table(path, {"n": "q", "x": "d", "gap": "d"})
    assert np.array_equal(columns["x"], values)
    assert columns["n"].dtype == np.int64
    assert columns["word"][0] == "report"
    assert np.isnan(columns["gap"]).all()


def test_a_cut_off_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n5")
    assert read_table(path, {"a": "q"})["a"].tolist() == [1, 3]


def test_what_was_written_after_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    writer = TableWriter(path, ["a"])
    writer.append({"a": 1})
    kept = writer.sync()
    writer.append({"a": 2})
    writer.close()
    again = TableWriter(path, ["a"], keep_bytes=kept)
    again.append({"a": 3})
    again.close()
    assert path.read_text() == "a\n1\n3\n"
    TableWriter(path, ["a"], keep_bytes=0).close()
    assert path.read_text() == "a\n"


def test_a_missing_or_empty_file(tmp_path: Path) -> None:
    with pytest.raises(OrlomoError, match="cannot read"):
        read_table(tmp_path / "none.csv", {})
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(OrlomoError, match="is empty"):
        read_table(tmp_path / "empty.csv", {})
