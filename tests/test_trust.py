"""Code that a received folder or file names is not run unasked; what this user has made is never asked about."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import orlomo
from orlomo import loading, trust
from orlomo.commands.main import main
from orlomo.config import RunConfig, to_table
from orlomo.records.recorder import create_folder
from orlomo.report.web.watch import Follower
from orlomo.resuming import untrusted_code
from small import call_cli, classification
from terminal import at_a_terminal

TASK = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
import torch, orlomo
from torch import nn
from dataclasses import dataclass

INPUTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

def task():
    return orlomo.Task(model=lambda: nn.Linear(4, 1), train_data=INPUTS, batch_size=8,
                       loss=lambda model, batch: model(batch).square().mean())

@dataclass(frozen=True, kw_only=True)
class Own(orlomo.ALSGD):
    pass

def decay(epoch):
    return 0.5 ** int(epoch)
"""

SHORT = ["--workers", "2", "--local-steps", "2", "--epochs", "1", "--jobs", "1", "--quiet"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration folder of a user who has none yet; code lies in its own folder, whose file `ran` says so."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(trust, "_made_here", set())
    # Without what other tests have left there: modules of the same name.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if str(tmp_path.parent) not in path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(TASK)
    return tmp_path / "home"


def somebody_else(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """From here on, another user with another key, in a process that has run nothing of the code."""
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{home}-of-another")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(home.parent / "code")])
    trust._made_here.clear()
    forget_code(home)


def forget_code(home: Path) -> None:
    loading._loaded.clear()
    sys.modules.pop("mine", None)
    (home.parent / "code" / "ran").unlink(missing_ok=True)


def ran(home: Path) -> bool:
    return (home.parent / "code" / "ran").exists()


def train(home: Path, *more: str, out: str = "run") -> Path:
    folder = home.parent
    done = call_cli("train", "code/mine.py:task", *SHORT, "--out", out, *more, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / out


def test_this_users_own_runs_are_never_asked_about(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = home.parent / "code" / "mine.py"
    method, schedule = f"{code}:Own", f"{code}:decay"
    folder = train(home, "--method", method, "--schedule", schedule)
    assert json.loads((folder / "signature.json").read_text()).keys() == {"config_hmac_sha256"}
    key = home / "orlomo" / "key"
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    trust._made_here.clear()  # as another process, which has only the files
    moved = folder.rename(home.parent / "moved")
    shutil.copytree(moved, home.parent / "copied")
    assert orlomo.load(moved).model().weight.shape == (1, 4)  # type: ignore[union-attr]
    for name in ("moved", "copied"):
        assert call_cli("replay", name, "--quiet", folder=home.parent).returncode == 0
    code.write_text(TASK + "# changed\n")
    for words in (
        ["resume", "moved", "--epochs", "2"],
        ["replay", "moved"],
        ["train", "moved/config.toml", "--out", "b"],
    ):
        done = call_cli(*words, "--quiet", folder=home.parent)
        assert done.returncode == 0, done.stderr
    assert "has changed since" in call_cli("replay", "copied", "--quiet", folder=home.parent).stderr
    assert orlomo.resume(home.parent / "copied", epochs=1.5, jobs=1, warn=lambda text: None).finished
    again = ["compare", "code/mine.py:task", "--methods", "asgd", *SHORT, "--out", "compared"]
    assert call_cli(*again, folder=home.parent).returncode == 0
    (home.parent / "compared" / "asgd-seed0" / "signature.json").unlink()  # made before there were signatures
    somebody_else(monkeypatch, home)
    assert call_cli(*again, folder=home.parent).returncode == 0  # the same code is typed again


CALLS: dict[str, Callable[[Path], object]] = {
    "resume": lambda folder: orlomo.resume(folder, epochs=2, jobs=1),
    "replay": lambda folder: orlomo.replay(folder, jobs=1),
    "model": lambda folder: orlomo.load(folder).model(),
}
WORDS = {
    "resume": ["resume", "run", "--epochs", "2"],
    "replay": ["replay", "run"],
    "train": ["train", "run/config.toml", "--out", "other"],
    "compare": ["compare", "run/config.toml", "--methods", "asgd", "--out", "other"],
}


def test_of_a_received_folder_nothing_runs_unless_trusted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = train(home, "--schedule", f"{home.parent}/code/mine.py:decay")
    somebody_else(monkeypatch, home)
    for name, call in CALLS.items():
        way_out = "run.model(task)" if name == "model" else f"orlomo.{name}("
        with pytest.raises(
            orlomo.OrlomoError, match=r"run would run code that you have not agreed to: .*mine.py:task"
        ) as e:
            call(folder)
        assert way_out in str(e.value)
    for words in WORDS.values():
        done = call_cli(*words, "--quiet", folder=home.parent)
        assert done.returncode == 2
        assert re.fullmatch(r"orlomo: .*mine\.py:task \(task\).* read it, then add --trust\n", done.stderr), done.stderr
    given, method = classification(), orlomo.OrLoMo()
    with pytest.raises(orlomo.OrlomoError, match=r"agreed to: \S+mine.py:decay \(schedule\); read it"):
        orlomo.replay(folder, task=given, jobs=1)
    with pytest.raises(orlomo.OrlomoError, match=r"agreed to: \S+mine.py:task \(task\); read it"):
        orlomo.replay(folder, method=method, jobs=1)
    assert not ran(home)
    assert not (home.parent / "other").exists()
    assert str(home.parent / "code") not in sys.path
    assert not Path(f"{home}-of-another").exists()  # nothing was agreed to: no key was made
    assert call_cli("replay", "run", "--trust", "--quiet", folder=home.parent).returncode == 0
    assert ran(home)
    assert call_cli("resume", "run", "--epochs", "2", "--quiet", folder=home.parent).returncode == 0
    assert orlomo.load(folder).model() is not None  # it is asked once
    (home.parent / "code" / "mine.py").write_text(TASK + "# changed\n")
    with pytest.raises(orlomo.OrlomoError, match="have not agreed to"):  # not to this
        orlomo.replay(folder, jobs=1)
    assert orlomo.replay(folder, jobs=1, trust=True, warn=lambda text: None).agrees


def test_code_beside_the_config_needs_trust_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = train(home)
    config = folder / "config.toml"
    shutil.copy(home.parent / "code" / "mine.py", folder / "mine.py")
    forget_code(home)
    trust._made_here.clear()
    config.write_text(config.read_text().replace(f"{home.parent}/code/", ""))  # the signature no longer fits
    monkeypatch.chdir(folder)
    for words in (["replay", "."], ["resume", "."], ["train", "config.toml"]):
        done = call_cli(*words, "--quiet", folder=folder)
        assert (done.returncode, "run/mine.py:task" in done.stderr) == (2, words[0] != "resume"), done.stderr
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "forged", ['{"config_hmac_sha256": "00"}', "[" * 3000, "\xff", '{"config_hmac_sha256": 7}', "[]"]
)
def test_a_forged_signature_does_not_fit(forged: str, home: Path) -> None:
    folder = home.parent / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    (folder / "signature.json").write_bytes(forged.encode("latin-1"))
    trust.remember([trust.Code("task", f"{home.parent}/code/mine.py:task")])  # so that there is a key
    assert not trust.is_signed(folder / "config.toml")


def test_the_signature_of_another_config_does_not_fit(home: Path) -> None:
    first, second = train(home), train(home, "--seed", "1", out="second")
    trust._made_here.clear()
    assert trust.is_signed(first / "config.toml")
    shutil.copy(second / "signature.json", first)
    assert not trust.is_signed(first / "config.toml")


READERS = (
    ["report", "run", "-o", "page.html"],
    ["export", "run", "--format", "csv"],
    ["audit", "run"],
    ["workers", "run"],
)
NAMES = {
    "task": 'task = "../code/mine.py:task"',
    "method": 'task = "quadratic"\nmethod = "../code/mine.py:Own"',
    "schedule": 'task = "quadratic"\n[method]\nname = "orlomo"\nschedule = "../code/mine.py:decay"',
    "module": 'task = "os:abort"',
    "package": 'task = "mine.sub:task"\n[method]\nname = "mine.sub:Own"\nschedule = "mine.sub:decay"',
    "script": 'task = "../code/mine.py"\ndirectory = "/"\nengine = "processes"',
}


@pytest.mark.parametrize("what", NAMES)
def test_reading_a_run_runs_nothing(what: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = home.parent / "code"
    package = home.parent / "mine"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(code / 'ran')!r}, 'w')")
    (package / "sub.py").write_text("")
    monkeypatch.syspath_prepend(home.parent)
    folder = home.parent / "run"
    run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=folder)
    text = (
        NAMES[what]
        if "[method]" in NAMES[what] or "method =" in NAMES[what]
        else NAMES[what] + '\n[method]\nname = "asgd"'
    )
    (folder / "config.toml").write_text(f"format = 2\nworkers = 2\n{text}\n")
    shutil.rmtree(folder / "checkpoints")  # they hold a seal of the config
    path = [*sys.path]
    for words in READERS:
        call_cli(*words, folder=home.parent)
    assert Follower(folder).read()  # what `watch` does
    found = orlomo.load(folder)
    assert found.state in ("finished", "stopped")
    assert found.changed_code(found.config) == []
    assert len(found.event_columns["kind"]) == len(run.event_columns["kind"])
    for words in (["resume", "run"], ["replay", "run"], ["train", "run/config.toml"]):
        done = call_cli(*words, folder=home.parent)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert not ran(home)
    assert sys.path == path


def test_a_loops_script_needs_trust(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, folder = home.parent / "code" / "mine.py", home.parent / "run"
    loop = {"directory": str(home.parent), "arguments": ("--lr", "0.1"), "engine": "processes"}
    config = RunConfig(task=str(script), method=orlomo.OrLoMo(), cluster=orlomo.cluster("homogeneous"), **loop)  # type: ignore[arg-type]
    create_folder(folder, config, [])
    trust._made_here.clear()
    own = orlomo.load(folder)
    assert untrusted_code(own) == []
    somebody_else(monkeypatch, home)
    [code] = untrusted_code(own)
    assert code == trust.Code("script", str(script), (str(home.parent), "--lr", "0.1"))
    done = call_cli("replay", "run", folder=home.parent)
    assert (done.returncode, ran(home)) == (2, False)
    assert f"{script} (script); read it, then add --trust" in done.stderr
    assert untrusted_code(own, lambda worker: None) == []  # a function that is given is run, and not the script
    trust.remember([code])
    assert untrusted_code(own) == []
    relative = trust.code_in({"task": "mine.py", "directory": str(script.parent), "method": "orlomo"})
    assert [one.path for one in relative] == [script]  # as it is run: in its folder
    function = trust.code_in({"task": "mine:loop", "directory": str(script.parent), "method": "orlomo"})
    assert [one.path for one in function] == [script]
    other = dataclasses.replace(config, arguments=("--out", "/"))
    assert trust.untrusted(trust.code_in(to_table(other))) != []  # what a script does is up to its arguments, too


def test_a_toml_file_is_agreed_to_once(home: Path) -> None:
    file = home.parent / "own.toml"
    file.write_text('task = "code/mine.py:task"\nseed = 1\n')
    words = ["train", "own.toml", *SHORT]
    done = call_cli(*words, "--out", "a", folder=home.parent)
    assert (done.returncode, ran(home)) == (2, False)
    assert "own.toml would run code that you have not agreed to" in done.stderr
    assert call_cli(*words, "--out", "a", "--trust", folder=home.parent).returncode == 0
    file.write_text(file.read_text().replace("seed = 1", "seed = 2"))  # settings are no code
    assert call_cli(*words, "--out", "b", folder=home.parent).returncode == 0
    file.write_text('task = "digits"\nmethod = "code/mine.py:Own"\n')
    assert call_cli(*words, "--samples", "64", "--out", "c", folder=home.parent).returncode == 2
    typed = ["--method", "code/mine.py:Own", "--samples", "64", "--out", "c"]
    assert call_cli(*words, *typed, folder=home.parent).returncode == 0


def test_an_experiments_file_may_not_name_code_unasked(home: Path) -> None:
    original = Path(__file__).parents[1] / "experiments" / "table-resnet20.toml"
    text = original.read_text("utf-8")
    (home.parent / "experiments").mkdir()
    changed = re.sub(r'task = "cifar10-resnet20"', f'task = "{home.parent}/code/mine.py:task"', text)
    assert changed != text
    (home.parent / "experiments" / "table-resnet20.toml").write_text(changed)
    done = call_cli("reproduce", "table-resnet20", "--rows", "K=8,S=8", "--quiet", folder=home.parent)
    assert (done.returncode, ran(home)) == (2, False)
    assert "mine.py:task (task); read it, then add --trust" in done.stderr


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_at_a_terminal_it_is_shown_and_asked(answer: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("LINES", "30")
    code = home.parent / "code" / "mine.py"
    code.write_text("# red \x1b[31m\n#" + " " * 500 + "hidden()\n" + TASK + "#\n" * 50)
    folder = train(home)
    lines = code.read_text().splitlines()
    somebody_else(monkeypatch, home)
    with at_a_terminal(f"{answer}\n") as shown:
        exit_code = main(["replay", str(folder), "--quiet"])
    [text] = shown
    assert f"--- {code}:task (task)" in text
    assert "INPUTS = torch.randn" in text
    assert "# red \\x1b[31m" in text
    assert f"{len(lines) - 22} more lines and 1 long lines are cut: the whole is in {code}" in text
    assert text.count("\n") < 30
    assert "Run this code? [y/N]" in text
    assert "\x1b" not in text
    assert ran(home) == (answer == "y")
    assert exit_code == (0 if answer == "y" else 2)
    if answer == "y":
        assert call_cli("replay", folder, "--quiet", folder=home.parent).returncode == 0  # asked once
    else:
        assert "run names is not run" in " ".join(text.splitlines()[-2:])


def _make(barrier: object, out: multiprocessing.Queue[bytes]) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    out.put(trust._key(make=True))


def test_two_processes_that_make_the_key_at_once_have_one(home: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(8):
        shutil.rmtree(home, ignore_errors=True)
        barrier, out = context.Barrier(2), context.Queue()
        processes = [context.Process(target=_make, args=(barrier, out)) for _ in range(2)]
        for process in processes:
            process.start()
        keys = {out.get(timeout=60) for _ in processes}
        for process in processes:
            process.join()
        assert keys == {(home / "orlomo" / "key").read_bytes()}
        assert [path.name for path in (home / "orlomo").iterdir()] == ["key"]


def unusable(home: Path, how: str) -> str:
    """Make the key one that cannot be used; part of what is said."""
    key = home / "orlomo" / "key"
    key.parent.mkdir(parents=True)
    if how == "no folder":
        key.parent.rmdir()
        home.rmdir()
        home.write_text("")
        return "cannot write"
    if how == "a FIFO":
        os.mkfifo(key, 0o600)
        return "is not a key: remove it"
    key.write_bytes(bytes(32 if how != "short" else 31))
    key.chmod(0o644 if how == "readable" else 0o600)
    if how == "another's":
        os.chown(key, 12345, 12345)
    return {"readable": "other users can read", "short": "is not a key", "another's": "belongs to another user"}[how]


@pytest.mark.parametrize("how", ["no folder", "a FIFO", "readable", "short", "another's"])
def test_without_a_key_runs_work_unsigned(how: str, home: Path) -> None:
    if how == "another's" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    said = unusable(home, how)
    folder = train(home)
    assert not (folder / "signature.json").exists()
    warnings: list[str] = []
    name, method = f"{home.parent}/code/mine.py:task", orlomo.OrLoMo(local_steps=2)
    run = orlomo.train(name, method, workers=2, epochs=1, jobs=1, out=home.parent / "b", warn=warnings.append)
    assert [said in text and "is not signed" in text and "--trust" in text for text in warnings] == [True], warnings
    run.model()  # in the process that has made it, it is known
    trust._made_here.clear()
    with pytest.raises(orlomo.OrlomoError, match="have not agreed to"):
        orlomo.replay(folder, jobs=1)
    assert orlomo.replay(folder, jobs=1, trust=True).agrees
    warnings.clear()
    orlomo.train("quadratic", workers=2, epochs=0.1, jobs=1, out=home.parent / "c", warn=warnings.append)
    assert warnings == []


def test_only_so_many_answers_are_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MOST_REMEMBERED", 3)
    every = []
    for number in range(5):
        path = home.parent / f"code-{number}.py"
        path.write_text("")
        every.append(trust.Code("task", f"{path}:task"))
        trust.remember(every[-1:])
        for position, marker in enumerate(
            sorted((home / "orlomo" / "trusted").iterdir(), key=lambda m: m.stat().st_mtime)
        ):
            os.utime(marker, (position, position))  # the clock may not tell them apart
    assert trust.untrusted(every) == every[:2]


def test_the_run_folder_as_working_directory_holds_no_code(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that a run of this user's own names is not taken from the run's folder, which others may have filled."""
    monkeypatch.chdir(home.parent / "code")
    orlomo.train("mine:task", workers=2, epochs=0.2, jobs=1, out=home.parent / "run")
    forget_code(home)
    trust._made_here.clear()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(home.parent / "code")])
    shutil.copy(home.parent / "code" / "mine.py", home.parent / "run" / "mine.py")
    monkeypatch.chdir(home.parent / "run")
    with pytest.raises(orlomo.OrlomoError, match="cannot import the task module 'mine'"):
        orlomo.replay(".", jobs=1)
    assert not (home.parent / "run" / "ran").exists()


def test_modules_in_the_run_folder_are_not_imported(home: Path) -> None:
    folder = home.parent / "run"
    orlomo.train("quadratic", workers=2, epochs=0.2, engine="processes", out=folder)
    for name in ("numpy", "torch", "safetensors", "multiprocessing", "rich", "json", "signal", "tomllib"):
        (folder / f"{name}.py").write_text(f"open({str(home.parent / 'code' / 'ran')!r}, 'w')")
    command = [sys.executable, "-m", "orlomo", "resume", ".", "--epochs", "0.3", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, ran(home)) == (0, False), done.stderr


def test_finding_a_module_runs_nothing() -> None:
    assert loading.source_path("torch.nn.functional:relu") == Path(torch.nn.functional.__file__)
    assert loading.source_path("os:abort") == Path(os.__file__)
    assert "xml.sax" not in sys.modules or sys.modules.pop("xml.sax")
    found = loading.source_path("xml.sax.handler:ContentHandler")
    assert found is not None
    assert found.name == "handler.py"
    assert "xml.sax" not in sys.modules
    for name in ("no_such_module:x", ":x", "..:x", "a..b:x", "__main__:x", "x\0:y"):
        assert loading.source_digest(name) == "" or name == "__main__:x"
