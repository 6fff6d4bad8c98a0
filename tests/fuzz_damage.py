"""What can happen to a file of a run folder, by accident or by intent: each case is drawn by a seeded generator."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz_corpus import Files, remove
from fuzz_values import changed_field

FOREIGN = ["notes.txt", "\x1b[31m.csv", "[/red].json", "a\nb", b"\xff\xfe.json", "-rf", "x" * 200, ".x.1.tmp", "csv"]
FOREIGN += [
    "checkpoints/x.json",
    "checkpoints/999999999.json",
    "checkpoints/-1.json",
    "checkpoints/.a.1.tmp",
    "log.txt",
]
FOREIGN += [
    "checkpoints/٣.json",
    "checkpoints/" + "9" * 40 + ".json",
    "control/1.json",
    "control/x.answer",
    "data.json",
]
FOREIGN += [
    ".best-next.safetensors",
    "rounds.csv",
    "changes.json",
    "tensorboard/events.out.tfevents.1",
    "a/config.toml",
]
"""Files that do not belong there, or not to this run."""


UNSEALED = (".lock", "log.txt", "signature.json", "comparison.csv", "comparison.json", "comparison.md")
"""Files that no checkpoint holds a checksum of."""


@dataclass
class Damage:
    """What was done: to which file, in words, and whether its content may be another now."""

    path: str
    text: str
    content: bool = True  # False: the bytes that a reader gets are the same
    forged: bool = False  # its checksum was computed again: nobody can tell
    after: bool = False  # only rows after the newest checkpoint, which nothing holds a checksum of
    rolled_back: bool = False  # the newest checkpoint is gone, as if the run had been killed before it was written
    seals: bool = True  # the run is of a version that seals its files

    @property
    def sealed(self) -> bool:
        """Whether it is a change of what checkpoints hold a checksum of."""
        lost = self.forged or self.after or self.rolled_back or Path(self.path).name in UNSEALED
        return self.content and self.seals and not lost

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
        if (
            source.random() < 0.1
            and done.content
            and not done.forged
            and kind in (self._bytes, self._lines, self._field)
        ):
            again = self._bytes(source.choice(sorted(self.files)))  # two at once
            if again.path == done.path:  # made from the undamaged content: the first is gone
                return again
            return Damage(done.path, f"{done.text}; {again}", after=done.after or again.after)
        return done

    def _put(self, name: str, content: bytes, text: str) -> Damage:
        (self.folder / name).write_bytes(content)
        old, size = self.files[name], self._sealed_size(name)
        return Damage(name, text, content != old, after=content[:size] == old[:size] and len(content) >= size)

    def _sealed_size(self, name: str) -> int:
        """As many bytes of a table as the newest checkpoint counts on; of another file, all."""
        path = Path(name)
        folder = str(path.parent / "checkpoints")
        newest = max(
            (one for one in self.files if str(Path(one).parent) == folder and one.endswith(".json")), default=""
        )
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
        """A hostile value in place of one of the file's own."""
        content, text, forged = changed_field(name, self.files[name], self.source)
        done = self._put(name, content, text) if text else self._bytes(name)
        done.forged = forged
        return done

    def _link(self, name: str) -> Damage:
        path, source = self.folder / name, self.source
        copy = self.outside / "copy"
        kind = source.choice(["copy", "file", "dangling", "itself", "zero", "folder", "hard", "parent", "inside"])
        if kind in ("copy", "hard"):
            remove(copy)
            copy.write_bytes(self.files[name])
        if kind == "parent":  # the folder that it is in, or one that commands make
            parent = Path(name).parent
            made = source.choice(["control", "csv", "parquet", "tensorboard"])
            place = parent if parent.name == "checkpoints" else parent / made
            target = self.outside / "folder"
            if (self.folder / place).is_dir():
                shutil.copytree(self.folder / place, target, dirs_exist_ok=True)
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
            return Damage(str(Path(name).parent), "taken out", rolled_back=True)
        remove(path)
        return Damage(name, "taken out", rolled_back="checkpoints" in name and name.endswith(".json"))

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
