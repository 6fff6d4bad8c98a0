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


@pytest.mark.parametrize("late_type", ["q", "d", "s"])
@pytest.mark.parametrize("late", ["1", "1.5", "word", "", "2,3", "1e30"])
def test_many_rows_are_read_as_few_are(
    late: str, late_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes late: another kind of value, a gap, a row that is not whole."""
    source = np.random.default_rng(0)
    bodies = [
        f"{'join' if n % 7 == 0 else 'report'},{n},{'' if n % 7 == 0 else x!r},1"
        for n, x in enumerate(source.normal(size=3000))
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["kind,n,x,late", *bodies, f"report,3000,0.1,{late}", "report,30"]))
    schema = {"n": "q", "x": "d", "late": late_type}
    fast = read_table(path, schema)
    monkeypatch.setattr("orlomo.records.tables.MANY", 10**9)
    slow = read_table(path, schema)
    for name, column in slow.items():
        assert fast[name].dtype == column.dtype
        assert np.array_equal(fast[name], column, equal_nan=column.dtype == np.float64)


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
