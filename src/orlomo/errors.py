"""Exceptions that say what went wrong and what to do about it.

Every error a user can cause is an `OrlomoError`; its text is one line without control characters, whatever names are
in it, which the command line prints as it is.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable

from orlomo.printing import printable


class OrlomoError(Exception):
    """Base of all errors that this package raises on purpose.

    >>> import orlomo
    >>> try:
    ...     orlomo.method("orlmo")
    ... except orlomo.OrlomoError as error:
    ...     print(str(error)[:47])
    unknown method 'orlmo': did you mean 'orlomo'?
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ConfigError(OrlomoError):
    """A name, number or file given by the user is wrong."""


class ReportRefused(OrlomoError):
    """The server refuses this report; its state is unchanged.

    `reason` is one of `unknown`, `folded`, `over`, `length`, `finite`, `samples`.

    >>> import orlomo, torch
    >>> server = orlomo.ALSGD().server(torch.zeros(2), workers=1)
    >>> assignments = server.start()
    >>> try:
    ...     server.receive(orlomo.Report(worker=7, index=0, delta_params=torch.ones(2)))
    ... except orlomo.ReportRefused as error:
    ...     print(error.reason)
    unknown
    """

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


class Diverged(OrlomoError):
    """Parameters or losses are no longer finite numbers.

    >>> import orlomo
    >>> try:
    ...     orlomo.train("quadratic", orlomo.ASGD(learning_rate=1e30), workers=2, out=getfixture("tmp_path") / "run")
    ... except orlomo.Diverged as error:
    ...     print("a smaller learning_rate may help")
    a smaller learning_rate may help
    """


class RunFolderError(OrlomoError):
    """A run folder is missing, damaged or in the way."""


class Interrupted(OrlomoError):
    """The run was stopped by a signal and saved a checkpoint first.

    >>> import signal
    >>> Interrupted("stopped by SIGTERM; saved", signal.SIGTERM).signal_number
    <Signals.SIGTERM: 15>
    """

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number


class OrlomoWarning(UserWarning):
    """What is probably not meant in a training loop that is otherwise right.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=OrlomoWarning)  # for those who know
    """


def warn(message: str) -> None:
    """Warn with an `OrlomoWarning`, at the line outside of this package and of torch that led to it."""
    frame, level = sys._getframe(1), 2
    while (above := frame.f_back) is not None and frame.f_globals.get("__name__", "").startswith(("orlomo.", "torch.")):
        frame, level = above, level + 1
    warnings.warn(printable(message), OrlomoWarning, stacklevel=level)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to this one; None if none is close."""
    if len(name) > 2 * LONGEST:  # to compare takes the square of the time
        return None
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def shown(value: object) -> str:
    """A value in an error, which is one short line whatever it is.

    >>> shown("digits"), shown([[1] * 100])
    ("'digits'", '[[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1... (list)')
    """
    if callable(value) and not isinstance(value, type):
        name = getattr(value, "__name__", "")
        return f"the function {name}" if name and name != "<lambda>" else f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() > LONGEST_BITS:  # Python refuses to write out the longest
        return f"a whole number of {value.bit_length()} bits"
    try:
        # What is cut off anyway is not written out: a text or a list may have millions of letters or parts.
        text = repr(value[:LONGEST] if isinstance(value, (str, bytes, list, tuple)) else value)
    except Exception:  # lists too deep within lists, numbers too long, or whatever a user's own object raises
        return f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:60]}... ({type(value).__name__})"


LONGEST = 80
"""Characters of a value that an error shows whole."""

LONGEST_BITS = 256
"""The same for a whole number, in bits."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in `known`, with the nearest one suggested.

    >>> str(unknown_name("method", "orlmo", ["orlomo", "asgd"]))
    "unknown method 'orlmo': did you mean 'orlomo'? (known: orlomo, asgd)"
    """
    names = list(known)
    found = nearest(name if isinstance(name, str) else shown(name), names)
    hint = f": did you mean {found!r}?" if found else ""
    return ConfigError(f"unknown {kind} {shown(name)}{hint} (known: {', '.join(names) or 'none'})")


def require(condition: bool, message: str) -> None:
    """Raise a `ConfigError` with this message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def require_at_most(value: float, most: float, what: str) -> None:
    """Raise a `ConfigError` that says what it is of a number that is too large.

    >>> require_at_most(10**9, 1_000_000, "workers")
    Traceback (most recent call last):
    orlomo.errors.ConfigError: workers must be at most 1,000,000, not 1000000000
    """
    limit = f"{most:,}" if isinstance(most, int) else f"{most:g}"
    require(value <= most, f"{what} must be at most {limit}, not {shown(value)}")


def require_takes(function: Callable[..., object], arguments: int, wanted: str) -> None:
    """Raise a `ConfigError` where a function cannot be called with so many arguments.

    >>> require_takes(lambda batch: batch, 2, "augment must be a function of a batch and a generator")
    Traceback (most recent call last):
    orlomo.errors.ConfigError: augment must be a function of a batch and a generator: too many positional arguments
    """
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise ConfigError(f"{wanted}: {error}") from None
    except ValueError:  # some built-in functions do not tell
        pass
