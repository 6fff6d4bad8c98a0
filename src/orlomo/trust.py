"""Whose code a run folder or a TOML file names: this user's own, or code that this user has said yes to.

A new run whose config names code is signed: `signature.json` is an HMAC of its config.toml under a random key in the
user's configuration folder, which nobody else can read. A folder that came from elsewhere has no signature that fits.
A yes to its code is remembered beside the key, by the code's place and content: of other code it is asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from orlomo.errors import ConfigError, OrlomoError, RunFolderError
from orlomo.files import open_to_read, read_bytes, short, write_text_atomically
from orlomo.loading import absolute, is_import_path, source_of, source_path
from orlomo.methods.rates import is_own
from orlomo.methods.registry import CUSTOM
from orlomo.reading import TOML_BYTES, read_json
from orlomo.values import Table

SIGNATURE = "signature.json"
SCRIPT = "script"
KEY_BYTES = 32
MOST_SIGNATURE = 4096
MOST_REMEMBERED = 1000
"""Answers that are remembered: the oldest are forgotten, and asked for again."""

_made_here: set[str] = set()
"""The digests of config.toml of the runs that this process has begun: they are its own, also where there is no key."""


class Code(NamedTuple):
    """Code that a config names: `what` is task, method, schedule, function or script; `name` is FILE.py:NAME,
    package.module:NAME or a script; `more` is what else decides what it does: a script's folder and arguments."""

    what: str
    name: str
    more: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file; None where it is not known without running anything."""
        directory = Path(*self.more[:1])
        return directory / self.name if self.what == SCRIPT else source_path(self.name, directory)

    def __str__(self) -> str:
        return f"{self.name} ({self.what})"


class _NoKey(Exception):
    """There is no key that can be used; the text says why."""


def code_in(table: Table, given: Collection[str] = ()) -> list[Code]:
    """The code that the table of a config names, paths absolute. `given`: of `task`, `method` and `schedule`, those
    that are not taken from the table, since the user has given another.

    >>> [str(code) for code in code_in({"task": "/tmp/my.py:task", "method": {"name": "orlomo"}})]
    ['/tmp/my.py:task (task)']
    """
    task, method = str(table.get("task", "")), table.get("method", {})
    method = method if isinstance(method, dict) else {"name": method}
    name, schedule = str(method.get("name", "")), method.get("schedule")
    found = []
    if "task" not in given and task != CUSTOM:
        if table.get("directory") is not None:  # a loop, whose task is a script or a function
            arguments = table.get("arguments")
            words = [str(word) for word in arguments] if isinstance(arguments, (list, tuple)) else []
            what = "function" if is_import_path(task) else SCRIPT
            found.append(Code(what, task, (str(table["directory"]), *words)))
        elif is_import_path(task):
            found.append(Code("task", absolute(task)))
    if "method" not in given and is_import_path(name):
        found.append(Code("method", absolute(name)))
    if "schedule" not in given and isinstance(schedule, str) and is_own(schedule):
        found.append(Code("schedule", absolute(schedule)))
    return found


def sign(folder: Path, config: str, table: Table) -> str | None:
    """Sign a new run, whose config.toml will hold this text, if that names code. What the user should know; None where
    all is well."""
    code = code_in(table)
    if not code:
        return None
    content = config.encode("utf-8")
    _made_here.add(hashlib.sha256(content).hexdigest())
    try:
        text = json.dumps({"config_hmac_sha256": _hmac(_key(make=True), "run", content)}, indent=1)
    except _NoKey as why:
        return (
            f"{short(folder)} is not signed: {why}; to resume or replay it, --trust will be needed "
            "(XDG_CONFIG_HOME can name another folder)"
        )
    write_text_atomically(folder / SIGNATURE, text + "\n")
    remember(code)  # so that a TOML file may name it, too
    return None


def is_signed(config: Path) -> bool:
    """Whether this config.toml, as it is, is of a run that this user has begun."""
    try:
        content = read_bytes(config, TOML_BYTES)
        if hashlib.sha256(content).hexdigest() in _made_here:
            return True
        found = read_json(config.with_name(SIGNATURE), MOST_SIGNATURE)["config_hmac_sha256"]
        return hmac.compare_digest(_hmac(_key(), "run", content), found)
    except (_NoKey, OrlomoError, OSError, ValueError, TypeError, KeyError):
        return False


def untrusted(code: Iterable[Code], config: Path | None = None) -> list[Code]:
    """Of this code, what this user has not said yes to; nothing where a run of this user's own names it.

    `config`: the config.toml, or another TOML file, that names it.
    """
    code = list(code)
    if not code or (config is not None and config.name == "config.toml" and is_signed(config)):
        return []
    return [one for one in code if not _is_remembered(one)]


def remember(code: Sequence[Code]) -> None:
    """The user has said yes to this code as it is now."""
    if not code:
        return
    with contextlib.suppress(_NoKey, OSError):  # then it is asked for again
        key = _key(make=True)
        folder = _folder() / "trusted"
        folder.mkdir(0o700, exist_ok=True)
        for one in code:
            if (name := _fingerprint(key, one)) is not None:
                (folder / name).touch(0o600)
        known = [path for path in folder.iterdir() if re.fullmatch("[0-9a-f]{64}", path.name)]
        for path in sorted(known, key=lambda path: path.lstat().st_mtime)[:-MOST_REMEMBERED]:
            path.unlink(missing_ok=True)


def require_trust(code: Sequence[Code], folder: Path, way_out: str, *, trusted: bool = False) -> None:
    """Raise a `ConfigError` where there is untrusted code, unless the user has said that it is `trusted`."""
    if code and not trusted:
        raise refused(code, folder, way_out)
    remember(code)


def refused(code: Sequence[Code], where: Path, way_out: str) -> ConfigError:
    """The error that says what would be run, and what to do."""
    named = ", ".join(map(str, code))
    return ConfigError(f"{short(where)} would run code that you have not agreed to: {named}; read it, then {way_out}")


def _is_remembered(code: Code) -> bool:
    try:
        name = _fingerprint(_key(), code)
        return name is not None and (_folder() / "trusted" / name).is_file()
    except (_NoKey, OSError):
        return False


def _fingerprint(key: bytes, code: Code) -> str | None:
    """What is remembered of code: its place and content. None where these are not known."""
    content = None if code.path is None else source_of(code.path)
    if code.path is None or content is None:
        return None
    name = code.name.rpartition(":")[2] if is_import_path(code.name) else ""
    facts = [os.path.realpath(code.path), name, hashlib.sha256(content).hexdigest(), *code.more]
    return _hmac(key, "code", json.dumps(facts).encode())


def _hmac(key: bytes, purpose: str, content: bytes) -> str:
    return hmac.new(key, f"orlomo {purpose}\0".encode() + content, hashlib.sha256).hexdigest()


def _folder() -> Path:
    """The user's configuration folder: `orlomo` in $XDG_CONFIG_HOME, or in ~/.config."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        return (Path(given) if os.path.isabs(given) else Path.home() / ".config") / "orlomo"
    except RuntimeError:
        raise _NoKey("there is no home folder for a key") from None


def _key(make: bool = False) -> bytes:
    """This user's key. `make`: where there is none yet."""
    path = _folder() / "key"
    try:
        if make and not path.exists():
            _make_key(path)
        return _read_key(path)
    except RunFolderError:  # no regular file
        raise _NoKey(f"{path} is not a key: remove it") from None
    except OSError as error:
        raise _NoKey(f"cannot {'write' if make else 'read'} {path}: {error.strerror}") from None


def _make_key(path: Path) -> None:
    """Of two processes that make it at once, both end with the key of the first."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".key-", dir=path.parent)  # which only we can read
    try:
        with open(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)  # unlike a rename, it never replaces
    finally:
        os.unlink(temporary)


def _read_key(path: Path) -> bytes:
    with open_to_read(path, follow=True) as file:
        facts = os.fstat(file.fileno())
        if facts.st_size != KEY_BYTES:
            raise _NoKey(f"{path} is not a key: remove it")
        if hasattr(os, "geteuid") and facts.st_uid != os.geteuid():
            raise _NoKey(f"{path} belongs to another user")
        if os.name == "posix" and stat.S_IMODE(facts.st_mode) & 0o077:
            raise _NoKey(f"other users can read {path}: remove it, or make it yours alone with chmod 600")
        return file.read(KEY_BYTES)
