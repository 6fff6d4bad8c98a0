"""Tables in blocks: the same as one field after the other, wherever a block ends and whatever a field holds."""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from orlomo.errors import RunFolderError
from orlomo.records.parsing import blocks
from orlomo.records.parsing.blocks import Table
from orlomo.records.tables import TableWriter, read_table

SCHEMA = {"n": "q", "x": "d", "word": "s"}
FORMS = ("{}", "{}.0", "{}.1", "{1}e-01", "{1}1e-02", "{}e+03")


def whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        floating = number(text)
        return int(floating) if abs(floating) < 2**53 and floating % 1 == 0 else -1
    return value if abs(value) < 2**63 else -1


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def plainly(content: bytes) -> dict[str, list[int] | list[float] | list[str]]:
    """What a table holds, read in the plainest way: this is what the reader must give."""
    header, *lines = [line.decode("utf-8", "replace") for line in content.split(b"\n")[:-1]]
    names = header.split(",")
    rows = [line.split(",") for line in lines if line and line.count(",") == len(names) - 1]
    kinds = {"q": whole, "d": number, "s": str}
    return {name: [kinds[SCHEMA.get(name, "s")](row[i]) for row in rows] for i, name in enumerate(names)}


def bits(values: list[int] | list[float] | list[str]) -> list[object]:
    return [
        struct.pack("<d", value) if isinstance(value, float) and value == value else repr(value) for value in values
    ]


FIELDS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(0, 10**7).map(str),
    st.floats().map(repr),
    st.floats(0, 1).map(repr),
    st.floats(0, 1e7).map(lambda value: f"{value:.30g}"),
    st.decimals(allow_nan=True).map(str),
    st.text(st.sampled_from("0123456789.e+-_ nafi\"'\t\r\0/:"), max_size=26),
    st.text(st.characters(exclude_characters=",\n", exclude_categories=["Cs"]), max_size=9),
    st.sampled_from(["", "report", "crash", "1.", ".5", ".", "-0.0", "1e22", "9007199254740993", "1e-05", "9" * 400]),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "-9223372036854775808", "1_0", "0x1", "٣", "1..2"]),
)


@trying(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_blocks_are_read_as_single_fields_are(data: st.DataObject, tmp_path: Path) -> None:
    names = data.draw(st.permutations(["n", "x", "word", "more"]))
    lines = data.draw(st.lists(st.lists(FIELDS, min_size=4, max_size=4).map(",".join), max_size=12))
    lines += data.draw(st.lists(st.lists(FIELDS, max_size=6).map(",".join), max_size=2))
    content = "\n".join([",".join(names), *data.draw(st.permutations(lines))]).encode()
    content += data.draw(st.sampled_from([b"\n", b"", b"\n\n", b"\n1,2", b"\n\xff,\xfe,\xc3,\n", b"\n,,,\n"]))
    if content.startswith(b"\n") or b"\n" not in content:
        return
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    expected = plainly(content)
    seen = hashlib.sha256()
    table = Table(path, SCHEMA, saw=seen.update, block=data.draw(st.integers(1, 80)))
    parts = list(table.read(lambda block: ({name: block.column(name).tolist() for name in names}, block.lines)))
    for name in names:
        assert bits([value for part, _ in parts for value in part[name]]) == bits(expected[name])
    assert sum(count for _, count in parts) == content.count(b"\n") - 1
    assert table.position == content.rindex(b"\n") + 1
    assert table.cut_off == (not content.endswith(b"\n"))
    assert seen.digest() == hashlib.sha256(content).digest()
    columns = read_table(path, SCHEMA)
    assert list(columns) == names
    for name, column in columns.items():
        assert column.dtype == {"q": np.int64, "d": np.float64}.get(SCHEMA.get(name, "s"), object)
        assert bits(column.tolist()) == bits(expected[name])


@trying(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_thousand_floats_at_once(seed: int) -> None:
    """As `repr` writes them, and with more or fewer digits: always the nearest float."""
    source = np.random.default_rng(seed)
    values = source.lognormal(0, 8, 1000) * source.choice([1, -1, 1, 1], 1000)
    digits = source.integers(1, 25, 1000)
    texts = [repr(v) if d > 18 else f"{v:.{d}g}" for v, d in zip(values.tolist(), digits.tolist(), strict=True)]
    # The middle of two floats, and a digit beside it.
    middles = (source.integers(2**52, 2**53, 100) * 2 + 1).tolist()
    texts += [form.format(m, m * 5) for m in middles for form in FORMS]
    text = blocks_of(texts)
    assert bits(text.column("x").tolist()) == bits([float(one) for one in texts])


def blocks_of(fields: list[str]) -> blocks.Block:
    content = ("\n".join(f"{field}," for field in fields) + "\n").encode()
    text = np.full(len(content) + 2 * blocks.PADDING, ord("\n"), dtype=np.uint8)
    text[blocks.PADDING : -blocks.PADDING] = np.frombuffer(content, dtype=np.uint8)
    return blocks.Block(text, len(text) - blocks.PADDING, ["x", "other"], SCHEMA)


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    path, seen = tmp_path / "t.csv", []
    path.write_bytes(b"n,x\n1,2.5\n2,")
    table = Table(path, SCHEMA, saw=lambda part: seen.append(bytes(part)), block=5)
    read = lambda: [value for part in table.read(lambda block: block.column("n").tolist()) for value in part]  # noqa: E731
    assert (read(), table.cut_off) == ([1], True)
    with path.open("ab") as file:
        file.write(b"3\n3,4\n")
    assert (read(), table.cut_off) == ([2, 3], False)
    assert read() == []
    assert b"".join(seen) == path.read_bytes()


@pytest.mark.parametrize("size", [64, 1000, 4096])
def test_a_line_that_is_too_long_is_left_out(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONGEST", 1000)
    path = tmp_path / "t.csv"
    path.write_bytes(b"n,word\n1,a\n2," + b"b" * 5000 + b"\n3," + b"c" * 900 + b"\n4,d\n" + b"5" * 3000)
    table = Table(path, SCHEMA, block=size)
    found = list(table.read(lambda block: (block.column("n").tolist(), block.lines)))
    assert [value for part, _ in found for value in part] == [1, 3, 4]
    assert sum(lines for _, lines in found) == 4
    assert table.position == path.stat().st_size - 3000
    assert table.cut_off
    path.write_bytes(b"n" * 2000 + b"\n1\n")
    with pytest.raises(RunFolderError, match="first line is longer than 1,000 bytes"):
        Table(path, SCHEMA)


def test_large_tables_are_read_by_several_threads_in_order(tmp_path: Path) -> None:
    path, source = tmp_path / "t.csv", np.random.default_rng(0)
    values = source.normal(size=20_000) * 10.0 ** source.integers(-30, 30, 20_000)
    writer = TableWriter(path, ["n", "x", "word", "gap"])
    for n, value in enumerate(values.tolist()):
        writer.append({"n": n, "x": value, "word": "a report" if n % 3 else "long words", "gap": math.nan})
    writer.close()
    table = Table(path, {**SCHEMA, "gap": "d"}, block=4096)
    names = ("n", "x", "word", "gap")
    parts = list(table.read(lambda block: {name: block.column(name) for name in names}))
    assert len(parts) > 100
    n, x, word, gap = (np.concatenate([part[name] for part in parts]) for name in names)
    assert np.array_equal(n, np.arange(20_000))
    assert x.tobytes() == values.tobytes()
    assert word.tolist() == ["a report" if n % 3 else "long words" for n in range(20_000)]
    assert np.isnan(gap).all()


def test_an_error_at_work_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n\n" + "1\n" * 10_000)

    def work(block: blocks.Block) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(Table(path, SCHEMA, block=100).read(work))
