"""Archives and pickles that ask for more memory than there is are refused in one line; whole archives are read."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import bombs
import pytest

from orlomo.data.bundles import Archive, archive_folders
from orlomo.errors import ConfigError

HARMLESS = ("pickle: memo", "pickle: memo as text", "pickle: frame", "pickle: a value of tuples")
"""Read, since they only name a large number, or are deep where nobody goes."""


def test_they_are_refused_in_little_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, bombs.__file__, tmp_path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: dict[str, str] = json.loads(done.stdout)
    assert len(answers) == 24
    for name, answer in answers.items():
        assert answer == "read: dict" if name in HARMLESS else answer.startswith("refused: "), (name, answer)
        assert "\n" not in answer, answer
        assert len(answer) < 400 + len(str(tmp_path)), answer


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_files_of_every_kind_are_read(tmp_path: Path, layout: int, mode: str) -> None:
    names = ["a", "b/c", f"{'d' * 90}/{'e' * 90}", "é/ü"]
    names += [f"{'f' * 200}/{'g' * 200}"] if layout != tarfile.USTAR_FORMAT else []
    with tarfile.open(tmp_path / "archive", mode, format=layout) as tar:  # type: ignore[call-overload]
        for number, name in enumerate(names):
            folder = tarfile.TarInfo(f"folder{number}")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 700 * number, 1.5 if layout == tarfile.PAX_FORMAT else 1
            tar.addfile(member, BytesIO(bytes([number]) * member.size))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    archive = Archive(tmp_path / "archive")
    for number, name in [*enumerate(names)][::-1]:
        assert archive.read(name, 10_000) == bytes([number]) * 700 * number
    assert archive.member("link") is None
    assert archive.member("folder0") is None
    archive.close()
    with archive_folders(tmp_path / "archive") as folders:
        assert {"", "b", "é"} <= {folder.folder for folder in folders}


def test_a_tar_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("a")
        member.size = 5000
        tar.addfile(member, BytesIO(bytes(5000)))
    whole = path.read_bytes()
    for length in (0, 1, 100, 511):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="is cut off, or not a tar or zip archive"):
            Archive(path)
    path.write_bytes(whole[:4000])
    archive = Archive(path)
    with pytest.raises(ConfigError, match=r"a in .* cannot be read: it is cut off"):
        archive.read("a", 10_000)
    archive.close()
