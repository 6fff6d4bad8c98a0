"""Settings that are wrong in every way that we could think of: each is refused in one line, or the run runs."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orlomo
from orlomo import config
from orlomo.clusters.cluster import Cluster, Fault, Speed, cluster
from orlomo.commands.main import main
from orlomo.config import RunConfig
from orlomo.errors import OrlomoError
from orlomo.methods.registry import METHODS, method_class, settings_of

DIGITS = "9" * 5000
NUMBERS = ("inf", "-inf", "nan", "1e308", "-1e308", "1e400", "1e-320", "0", "-1", "-0.0", "0.5", "1", "1000000000")
NUMBERS += ("9223372036854775807", "18446744073709551616", "9" * 4000, DIGITS, f"1.{DIGITS}", f"0x{'f' * 5000}")
TEXTS = ("''", "':'", "'a:b'", "'x.py:y'", "'.'", "'/dev/zero'", f"'{'x' * 300}'", f"'{'x' * 100_000}'", "'[/red]'")
TEXTS += (r'"a\u0000b"', r'"\u001b[31m"', "'fifo.toml'", "'own.toml'")
OTHERS = ("true", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "[]", "[[]]", "[1, 'a']", "{}", "{a = 1}")
OTHERS += (f"[{'1,' * 1000}]", "[" * 30 + "]" * 30, "[" * 3000 + "]" * 3000, "{a=" * 500 + "1" + "}" * 500)
HOSTILE = (*NUMBERS, *TEXTS, *OTHERS)
"""For every setting, as TOML has it."""

RULES = ("'file:/dev/zero'", "'file:fifo'", "'file:.'", "'file:'", r'"file:\u0000"', "'file:large'", "'gamma:1e-320'")
RULES += ("'gamma:inf'", "'gamma:'", "'lognormal:1e-320'", "'stall:1e-320'", "'slow-worker:1e308'", "'stall:nan'")
RULES += ("'heterogeneous:1e308'", f"'slow-worker:{DIGITS}'", "'step:1e-320'", "'step:1e-9,2e-9@1e308'", "'step:'")
RULES += (f"'step:{','.join(map(str, range(1, 5000)))}'", "'step:2,1'", "'cosine:1e-320'", "'cosine:1e308'")
RULES += ("'cosine:0'", "'constant:1e308'", "'constant:1e-320'", "'constant:0'")
RULED = ("law", "schedule", "global_rate", "cluster", "preset")
"""For settings that are rules of a few words."""

RUN = (*RunConfig.__dataclass_fields__, "format", "code", "unknown")
METHOD_SETTINGS = {name: ("name", "class", *settings_of(method_class(name))) for name in METHODS}
OWN = {name: [s for s in settings if s not in METHOD_SETTINGS["orlomo"]] for name, settings in METHOD_SETTINGS.items()}
"""The settings of each method that orlomo does not have."""
OWN["orlomo"] = [*METHOD_SETTINGS["orlomo"]]

WHOLE_FILES = (
    b"",
    b"task = 'quadratic'\0",
    b"task = '\xff'",
    "\ufefftask = 'quadratic'".encode(),
    b"a" + b".a" * 5000 + b" = 1",
    b"[" + b"a." * 5000 + b"a]",
    b"\n".join(b"k%d = 1" % number for number in range(20_000)),
    b"cluster = 'config.toml'",
    b"task = 'quadratic'\n" * 2,
    b"\n" * (1 << 20),
    b"method = 1\n[method]\nname = 'orlomo'",
)


def corpus() -> Iterator[tuple[str, str]]:
    """Every setting with every value: what the setting is set to, and the config's other lines."""
    places = [(name, "") for name in RUN]
    places += [(name, "engine = 'processes'") for name in ("devices", "threads", "pace")]
    places += [(f"method.{name}", f"method.name = '{method}'") for method in OWN for name in OWN[method]]
    places += [(f"cluster.{name}", "") for name in (*Cluster.__dataclass_fields__, "preset")]
    places += [(f"cluster.speeds.0.{name}", "cluster.per = 'step'") for name in Speed.__dataclass_fields__]
    places += [(f"cluster.faults.0.{name}", "") for name in Fault.__dataclass_fields__]
    for place, others in places:
        for value in (*HOSTILE, *(RULES if place.rpartition(".")[2] in RULED else ())):
            yield f"{place} = {value}", others


def whole(setting: str, others: str = "") -> str:
    """A config of a run of one report, with this setting in it."""
    place, _, value = setting.partition(" = ")
    usual = {"task": "'quadratic'", "workers": "2", "epochs": "0.001"}
    usual |= {"cluster.faults.0.time": "1.0", "cluster.faults.0.worker": "0", "cluster.faults.0.kind": "'crash'"}
    first, _, name = place.rpartition(".0.")
    lines = dict(line.split(" = ", 1) for line in others.splitlines())
    lines = {k: v for k, v in usual.items() if ".0." not in k or k.startswith(f"{first}.0.")} | lines | {place: value}
    inner = {k.rpartition(".0.")[2]: v for k, v in lines.items() if ".0." in k}
    text = "".join(f"{k} = {v}\n" for k, v in lines.items() if ".0." not in k)
    return text + (f"[[{first}]]\n" + "".join(f"{k} = {v}\n" for k, v in inner.items()) if name else "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what the corpus names; nothing waits for the disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    os.mkfifo("fifo")
    os.mkfifo("fifo.toml")
    Path("own.toml").write_text("cluster = 'own.toml'")
    with Path("large").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path


def one_line(text: str) -> bool:
    return bool(text) and len(text.splitlines()) == 1 and len(text) < 1000 and "Traceback" not in text


def written(text: str | bytes) -> Path:
    path = Path("config.toml")
    path.unlink(missing_ok=True)  # some file systems wait for the disk where a file is emptied
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def trained(text: str | bytes, out: str) -> tuple[int, str]:
    """The exit code of `orlomo train` with this config, and what it says of errors."""
    written(text)
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(["train", "config.toml", "--jobs", "1", "--quiet", "--out", out])
    return code, said.getvalue()


def right(code: int, said: str) -> bool:
    # A run that diverged also says how to continue.
    return code == 0 or (code == 2 and one_line(said.split("\nsaved; ")[0]) and said.startswith("orlomo: "))


def test_configs_of_every_setting_with_every_value(folder: Path) -> None:
    accepted, refused = [], []
    for setting, others in corpus():
        text = whole(setting, others)
        try:
            config.check_reads_back(config.from_table(config.read(written(text)), "config.toml"))
            accepted.append(text)
        except OrlomoError as error:
            refused.append((text, str(error)))
    assert len(accepted) + len(refused) > 2500
    assert not [(text[:300], said[:300]) for text, said in refused if not one_line(said)]
    # What is accepted runs, or is refused by what only the task knows; what is refused, the command refuses.
    for number, text in enumerate([*accepted[::5], *(text for text, _ in refused[::40])]):
        code, said = trained(text, f"run{number}")
        assert right(code, said), (text[:300], code, said[:600])


def test_files_that_are_no_configs(folder: Path) -> None:
    for number, content in enumerate(WHOLE_FILES):
        code, said = trained(content, f"run{number}")
        assert right(code, said), (content[:100], code, said[:600])
    for path in ("fifo.toml", "own.toml", ".toml", "/dev/zero.toml", "x" * 300 + ".toml", "a\0.toml"):
        said_of = io.StringIO()
        with contextlib.redirect_stderr(said_of):
            assert main(["train", path, "--quiet"]) == 2, path
        assert one_line(said_of.getvalue()), path


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[object, ...] = (
    *(float("inf"), float("nan"), 1e308, -1, 0, 10**5000, -(10**5000), 2**63, True, None, Decimal("NaN")),
    *(Fraction(10**400, 3), Decimal("1e999999"), 1j, "", "\0", "\udcff", "x" * 10**6, b"bytes", bytearray(8)),
    *([], deep(100_000), (1,) * 10**6, {}, {1: 2}, {"a": deep(10_000)}, set(), range(10**12), iter(())),
    *(np.float64("nan"), np.array([[1, 2]]), np.zeros(10**6), object(), object, print, datetime.date(2020, 1, 1)),
    *(np.uint64(2**64 - 1), np.array(10**9), [10**5000], {"a": 10**5000}, Path("/dev/zero"), Path("fifo.toml")),
)


def test_python_calls_with_every_value(folder: Path) -> None:
    made = {"method": orlomo.OrLoMo(), "cluster": cluster("homogeneous")}

    def calls(value: Any) -> Iterator[tuple[str, Any]]:
        for name in RunConfig.__dataclass_fields__:
            yield name, lambda: config.check_reads_back(RunConfig(**{**made, name: value}))  # noqa: B023
        for method, settings in OWN.items():
            for name in set(settings) - {"name"}:
                yield f"{method} {name}", lambda: orlomo.method(method, **{name: value})  # noqa: B023
        for kind, usual in ((Cluster, {}), (Speed, {}), (Fault, {"time": 1.0, "worker": 0, "kind": "crash"})):
            for name in kind.__dataclass_fields__:
                yield f"{kind.__name__} {name}", lambda: kind(**{**usual, name: value})  # type: ignore[arg-type]  # noqa: B023
        for name in ("workers", "iterations", "seed", "parameters", "cluster", "method"):
            few = {"workers": 2, "iterations": 2, "method": "asgd"}
            yield f"trace {name}", lambda: orlomo.trace(**{**few, name: value})  # type: ignore[arg-type]  # noqa: B023

    count, wrong = 0, []
    for value in VALUES:
        for name, call in calls(value):
            count += 1
            try:
                call()
            except OrlomoError as error:
                wrong += [] if one_line(str(error)) else [(name, type(value), str(error)[:300])]
    assert not wrong
    assert count > 1500


LIMITED = """
    import io, contextlib, resource, sys
    from pathlib import Path
    from orlomo.commands.main import main
    from orlomo.training import train  # all modules are loaded before memory is counted
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for setting in sys.argv[1:]:
        Path("config.toml").write_text(f"task = 'quadratic'\\nepochs = 0.001\\n{setting}\\n")
        code = main(["train", "config.toml", "--jobs", "1", "--quiet", "--out", "run"])
        assert code == 2, setting
"""

LARGE = (
    *(
        "workers = 1000000000",
        "workers = 9223372036854775807",
        "epochs = 1e11",
        "epochs = 1e12",
        "batch_size = 100000000",
    ),
    *("method = {name = 'orlomo', local_steps = 1000000000}", "method = {name = 'asgd'}\nbatch_size = 1000000000000"),
    *("engine = 'processes'\nthreads = 1000000000", "engine = 'processes'\nworkers = 1000000", "cluster = 'fifo.toml'"),
    *("cluster = {speeds = [{law = 'file:/dev/zero'}]}", "cluster = {speeds = [{law = 'file:large'}]}"),
    *(
        "cluster = {speeds = [{count = 1000000000}]}",
        "method = {name = 'orlomo', local_steps = 1000000}\nbatch_size = 90",
    ),
)


def test_nothing_large_is_made_before_it_is_refused(folder: Path) -> None:
    """In a process with little memory."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), *LARGE],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert len(lines) == len(LARGE), done.stderr
    assert all(line.startswith("orlomo: ") for line in lines), done.stderr
    assert not Path("run").exists()


def test_a_run_is_not_continued_for_too_many_epochs_and_stays_as_it_was(folder: Path) -> None:
    orlomo.train("quadratic", "asgd", workers=2, epochs=0.01, jobs=1, out="run")
    for epochs in (float("nan"), float("inf"), -1.0, 1e308, 1e12, 1e6):
        with pytest.raises(OrlomoError, match="epochs"):
            orlomo.resume("run", epochs=epochs, jobs=1)
    assert orlomo.load("run").config.epochs == 0.01
    assert len(orlomo.resume("run", epochs=0.02, jobs=1).events["kind"]) == 21
