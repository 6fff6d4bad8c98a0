"""What can happen to a file of a run folder, by accident or by intent: each case is drawn by a seeded generator."""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_corpus import Files, remove

DEEP = 100_000

FIELDS = ["nan", "inf", "-inf", "1e999", "-1", "0", "1", "2.5", str(10**18), str(2**63), "9" * 5000, "", '"', '"a,b"', "'"]
FIELDS += ["\x1b[31mred", "[/red]", "<script>", "\0", "x" * 200_000, "report", "crash", "None", "true", "1_000", "٣", "é"]
"""Text for fields of tables and values of TOML, which may be of another type or none."""

VALUES = [*FIELDS, "null", "[]", "{}", '""', '"\\ud800"', '"\\u001b[31m"', "-0.0", "1e308", "[" * DEEP, '{"a":' * DEEP]
VALUES += ['[[[["a"]]]]', '{"a": 1, "a": 2}', "Infinity", "-Infinity", "NaN", '"/etc/passwd"', '"../../outside"', "false"]
"""Values of JSON and TOML."""

FOREIGN = ["notes.txt", "\x1b[31m.csv", "[/red].json", "a\nb", b"\xff\xfe.json", "-rf", "x" * 200, ".x.1.tmp", "csv"]
FOREIGN += ["checkpoints/x.json", "checkpoints/999999999.json", "checkpoints/-1.json", "checkpoints/.a.1.tmp", "log.txt"]
FOREIGN += ["checkpoints/٣.json", "checkpoints/" + "9" * 40 + ".json", "control/1.json", "control/x.answer", "data.json"]
FOREIGN += [".best-next.safetensors", "rounds.csv", "changes.json", "tensorboard/events.out.tfevents.1", "a/config.toml"]
"""Files that do not belong there, or not to this run."""


UNSEALED = (".lock", "log.txt", "best.json", "comparison.csv", "comparison.json", "comparison.md")
"""Files that no checkpoint holds a checksum of."""


@dataclass
class Damage:
    """What was done: to which file, in words, and whether its content may be another now."""

    path: str
    text: str
    content: bool = True  # False: the bytes that a reader gets are the same
    forged: bool = False  # its checksum was computed again: nobody can tell
    after: bool = False  # only rows after the newest checkpoint, which nothing holds a checksum of

    @property
    def sealed(self) -> bool:
        """Whether it is a change of what checkpoints hold a checksum of."""
        return self.content and not self.forged and not self.after and Path(self.path).name not in UNSEALED

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Damager:
    """Damages a run folder; `outside` is a folder of bystanders beside it."""

    def __init__(self, folder: Path, outside: Path, files: Files, others: list[Files], source: random.Random):
        self.folder, self.outside, self.files, self.others, self.source = folder, outside, files, others, source

    def damage(self) -> Damage:
        """Do one thing to one file, drawn at random."""
        source = self.source
        name = source.choice(sorted(self.files))
        kinds: list[tuple[Callable[[str], Damage], float]] = [
            (self._bytes, 3), (self._lines, 2), (self._field, 6), (self._link, 2), (self._special, 2),
            (self._missing, 1), (self._foreign, 1), (self._exchanged, 1),
        ]  # fmt: skip
        [kind] = source.choices([one for one, _ in kinds], [weight for _, weight in kinds])
        done = kind(name)
        if source.random() < 0.1 and done.content and not done.forged and kind in (self._bytes, self._lines, self._field):
            again = self._bytes(source.choice(sorted(self.files)))  # two at once
            return Damage(done.path, f"{done.text}; {again}", after=done.after and again.after)
        return done

    def _put(self, name: str, content: bytes, text: str) -> Damage:
        (self.folder / name).write_bytes(content)
        old, size = self.files[name], self._sealed_size(name)
        return Damage(name, text, content != old, after=content[:size] == old[:size] and len(content) >= size)

    def _sealed_size(self, name: str) -> int:
        """As many bytes of a table as the newest checkpoint counts on; of another file, all."""
        path = Path(name)
        folder = str(path.parent / "checkpoints")
        newest = max((one for one in self.files if str(Path(one).parent) == folder and one.endswith(".json")), default="")
        sizes = json.loads(self.files[newest])["values"]["files"] if newest else {}
        return int(sizes.get(path.stem, len(self.files[name]) + 1)) if path.suffix == ".csv" else 1 << 40

    def _bytes(self, name: str) -> Damage:
        source, content = self.source, self.files[name]
        at = source.randrange(len(content)) if content else 0
        end = min(len(content), at + source.choice([1, 4, 64]))
        bit = 1 << source.randrange(8)
        flipped = bytes([content[at] ^ bit]) if content else b""
        digit = next((n for n in range(at, len(content)) if content[n : n + 1].isdigit()), None)
        other = b"" if digit is None else b"7" if content[digit : digit + 1] != b"7" else b"3"
        garbage = source.choice([b"\xff", b"\0", b"\x1b[2J", b"\xed\xa0\x80", b"\n", b",", b'"', source.randbytes(16)])
        choices = {
            "emptied": b"",
            f"cut at byte {at}": content[:at],
            "the last byte cut off": content[:-1],
            f"bit {bit} of byte {at} flipped": content[:at] + flipped + content[at + 1 :],
            f"the digit at byte {digit} changed": content if digit is None else _spliced(content, digit, other),
            f"{garbage!r} put in at byte {at}": content[:at] + garbage + content[at:],
            f"bytes {at} to {end} taken out": content[:at] + content[end:],
            f"zeros from byte {at} on": content[:at] + bytes(len(content) - at),
            "twice in a row": content * 2,
            "random bytes": source.randbytes(len(content)),
            "lines end in CR LF": content.replace(b"\n", b"\r\n"),
            "a byte order mark": b"\xef\xbb\xbf" + content,
            "a line added": content + source.choice([b"\n", b"x\n", b"\xff\n", b"0", content[-9:]]),
        }
        text = source.choice(list(choices))
        return self._put(name, choices[text], text)

    def _lines(self, name: str) -> Damage:
        source, lines = self.source, self.files[name].splitlines(True)
        if len(lines) < 3 or name.endswith(".safetensors"):
            return self._bytes(name)
        first, second = sorted(source.sample(range(len(lines)), 2))
        swapped, moved = list(lines), [*lines]
        swapped[first], swapped[second] = lines[second], lines[first]
        source.shuffle(moved)
        choices = {
            f"lines {first} and {second} swapped": swapped,
            f"line {second} again after line {first}": [*lines[: first + 1], lines[second], *lines[first + 1 :]],
            f"line {first} taken out": [*lines[:first], *lines[first + 1 :]],
            f"line {second} taken out": [*lines[:second], *lines[second + 1 :]],
            "the first line taken out": lines[1:],
            f"cut after line {first}": lines[: first + 1],
            "lines in another order": moved,
        }
        text = source.choice(list(choices))
        return self._put(name, b"".join(choices[text]), text)

    def _field(self, name: str) -> Damage:
        if name.endswith(".csv"):
            return self._cell(name)
        if name.endswith(".toml"):
            return self._setting(name)
        if name.endswith(".json"):
            return self._value(name)
        return self._header(name) if name.endswith(".safetensors") else self._bytes(name)

    def _cell(self, name: str) -> Damage:
        source = self.source
        rows = [line.split(b",") for line in self.files[name].splitlines()]
        row, column = source.randrange(len(rows)), source.randrange(len(rows[0]))
        if source.random() < 0.15:
            row = 0
        title, text = rows[0][column].decode(), source.choice(FIELDS)
        if source.random() < 0.2:  # a column
            rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
            return self._put(name, b"".join(b",".join(cells) + b"\n" for cells in rows), f"no column {title}")
        rows[row][column] = text.encode()
        return self._put(name, b"".join(b",".join(cells) + b"\n" for cells in rows), f"{title} of row {row}: {_s(text)}")

    def _setting(self, name: str) -> Damage:
        source = self.source
        lines = self.files[name].decode().splitlines()
        number = source.choice([n for n, line in enumerate(lines) if " = " in line])
        key, value = lines[number].split(" = ", 1)
        new = source.choice([*VALUES, '"nan"', '["a"]', "[1, 2]", "1e-320", "10**9", '"gamma:1e-320"', '"file:/dev/zero"'])
        kind = source.random()
        lines[number] = f"{key} = {new}" if kind < 0.8 else f"{key}x = {value}" if kind < 0.9 else f"{key} = {value}\n" * 2
        return self._put(name, "\n".join([*lines, ""]).encode(), f"line {number}: {_s(lines[number])}")

    def _value(self, name: str) -> Damage:
        source = self.source
        places = _places(json.loads(self.files[name]))
        place = source.choice(places)
        new, kind = source.choice(VALUES), source.random()
        content = json.loads(self.files[name])
        if place and kind < 0.25:
            _at(content, place[:-1]).pop(place[-1])
            text, written = f"no {place}", json.dumps(content, indent=1)
        elif place:
            _at(content, place[:-1])[place[-1]] = "@@"
            text, written = f"{place} is {_s(new)}", json.dumps(content, indent=1)
        else:
            text, written = f"all is {_s(new)}", '"@@"'
        forged = "checkpoints" in name and source.random() < 0.6 and _sealed_again(written, new)
        if forged:
            return self._put(name, forged, f"{text}, with the checksum of that") and Damage(name, text, forged=True)
        return self._put(name, written.replace('"@@"', new).encode("utf-8", "surrogatepass"), text)

    def _header(self, name: str) -> Damage:
        """The header of a safetensors file: its length in 8 bytes, then JSON."""
        source, content = self.source, self.files[name]
        length = int.from_bytes(content[:8], "little")
        header, rest = content[8 : 8 + length], content[8 + length :]
        fake = source.choice([0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])
        if source.random() < 0.3:
            return self._put(name, fake.to_bytes(8, "little") + content[8:], f"a header of {fake} bytes")
        old, new = source.choice([(b"F32", b"I64"), (b"F32", b"F16"), (b"F32", b"BF16"), (b"[0,", b"[4,"), (b'"shape"', b'"s"')])
        changed = header.replace(old, new, 1)
        if source.random() < 0.3:
            changed, new = source.choice(VALUES).encode("utf-8", "surrogatepass"), b"another"
        return self._put(name, len(changed).to_bytes(8, "little") + changed + rest, f"{_s(new.decode())} in its header")

    def _link(self, name: str) -> Damage:
        path, source = self.folder / name, self.source
        copy = self.outside / "copy"
        kind = source.choice(["copy", "file", "dangling", "itself", "zero", "folder", "hard", "parent", "inside"])
        if kind in ("copy", "hard"):
            remove(copy)
            copy.write_bytes(self.files[name])
        if kind == "parent":  # the folder that it is in, or one that commands make
            place = Path(name).parent if "/" in name else Path(source.choice(["control", "csv", "parquet", "tensorboard"]))
            target = self.outside / "folder"
            if (self.folder / place).is_dir():
                for one in sorted((self.folder / place).iterdir()):
                    (target / one.name).write_bytes(one.read_bytes())
            remove(self.folder / place)
            (self.folder / place).symlink_to(target)
            return Damage(str(place), "a link to a folder outside", content=False)
        remove(path)
        if kind == "hard":
            os.link(copy, path)
            return Damage(name, "a second name of a file outside", content=False)
        inside = self.folder / source.choice(sorted(self.files))
        targets = {"copy": copy, "file": self.outside / "file", "dangling": self.outside / "none", "itself": path}
        targets |= {"zero": Path("/dev/zero"), "folder": self.outside / "folder", "inside": inside}
        path.symlink_to(targets[kind])
        return Damage(name, f"a link: {kind}", content=kind not in ("copy", "inside"))

    def _special(self, name: str) -> Damage:
        path, source = self.folder / name, self.source
        kind = source.choice(["FIFO", "socket", "folder", "file in place of its folder", "no permission"])
        if kind == "no permission":
            if os.geteuid() == 0:
                kind = "FIFO"
            else:
                path.chmod(0)
                return Damage(name, kind)
        if kind == "file in place of its folder" and "/" in name:
            remove(path.parent)
            path.parent.write_bytes(source.choice([b"", b"x"]))
            return Damage(name, kind)
        remove(path)
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        else:
            path.mkdir()
            if source.random() < 0.5:
                (path / "x").write_bytes(b"x")
        return Damage(name, kind)

    def _missing(self, name: str) -> Damage:
        path = self.folder / name
        if "/" in name and self.source.random() < 0.3:
            remove(path.parent)
            return Damage(str(Path(name).parent), "taken out")
        remove(path)
        return Damage(name, "taken out")

    def _foreign(self, name: str) -> Damage:
        """A file that was not there; of the run's own names, with another's content."""
        source = self.source
        chosen = os.fsdecode(source.choice(FOREIGN))
        content = source.choice([b"", b"\xff\0", b"{}", b"[1]", b'{"kind": "add", "number": 1}', b"kind,worker\n1,2\n"])
        path = self.folder / chosen
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return self._missing(name)
        if source.random() < 0.1:
            os.mkfifo(path)
        elif source.random() < 0.1:
            path.symlink_to(self.outside / "file")
        else:
            path.write_bytes(content)
        return Damage(chosen, f"added, with {content!r}", content=False)

    def _exchanged(self, name: str) -> Damage:
        """The content of another file, of this run or of another one."""
        choices = [(other, files[other]) for files in (*self.others, self.files) for other in files]
        same = [(other, content) for other, content in choices if Path(other).suffix == Path(name).suffix]
        other, content = self.source.choice(same if self.source.random() < 0.8 else choices)
        return self._put(name, content, f"the content of another file, {other}")


def _spliced(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + 1 :]


def _s(text: str) -> str:
    """For display."""
    return ascii(text if len(text) < 60 else f"{text[:40]}... ({len(text)} characters)")


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value in a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in _places(one, (*at, key)))]


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _sealed_again(written: str, new: str) -> bytes:
    """The JSON file of a checkpoint with a checksum that fits; empty where the value is no JSON."""
    try:
        content = json.loads(written.replace('"@@"', new))
        content.pop("sha256")
        seal = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return json.dumps({"sha256": seal, **content}, indent=1).encode()
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        return b""
