"""Connecting to a Ray cluster, or starting a private one.

This module can be imported without Ray.
"""

from __future__ import annotations

import contextlib
import copy
import os
import secrets
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from orlomo.engines.ray.fit import GUIDE, SPARE_BYTES, Need, check, check_private, size, uses_tls
from orlomo.errors import ConfigError
from orlomo.records.log import Log
from orlomo.temporary import TemporaryFolder

OLDEST = (2, 60)

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1500,
    "health_check_failure_threshold": 3,
}
"""With these a frozen machine or a pulled cable is noticed within 10 s; Ray's own values take over a minute."""

KNOCK_SECONDS = 5.0


@dataclass(frozen=True)
class RayOptions:
    """Which Ray cluster to use, and its runtime environment.

    Neither is part of a run's config, since the result does not depend on them.

    Args:
        address: `host:port` of a running cluster, or `auto`; None: RAY_ADDRESS, else a private cluster on this machine.
        runtime_env: Ray's `runtime_env`, passed through: packages, modules and environment variables for the workers.

    >>> RayOptions(address="10.0.0.5:6379", runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}}).address
    '10.0.0.5:6379'
    """

    address: str | None = None
    runtime_env: Mapping[str, object] | None = None

    @property
    def flags(self) -> str:
        """What to give to `orlomo resume`."""
        return f" --address {self.address}" if self.address else ""


@contextlib.contextmanager
def connection(options: RayOptions, need: Need, log: Log) -> Iterator[None]:
    """Connected to a cluster that the run fits on. A connection that is there already is used, and left as it is."""
    ray = import_ray()
    if ray.is_initialized():
        if options != RayOptions():
            raise ConfigError(
                "this process is connected to Ray already: give address and runtime_env to its ray.init()"
            )
        check(ray, need, log.warn)
        yield
        return
    address = options.address or os.environ.get("RAY_ADDRESS")
    if address is not None and address.startswith("ray://"):
        raise ConfigError(
            f"{address} is for Ray's client, which keeps the server far from its workers: run this on a machine of the "
            f"cluster with --address auto, or by `ray job submit` (see {GUIDE})"
        )
    private = address in (None, "local")
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(_private(need)) if private else {"address": address}
        if not private:
            _knock(str(address))
        stack.enter_context(_environment({}))
        stack.callback(ray.shutdown)
        stack.enter_context(_own_words(log))
        with _own_signals():
            _init(ray, options, settings)
        if private:
            check_private(ray, need)
        check(ray, need, log.warn)
        yield


def import_ray() -> ModuleType:
    """Ray, if it is there and new enough."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--engine ray needs Ray: pip install 'orlomo[ray]'") from None
    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"--engine ray needs Ray {oldest} or newer, not {ray.__version__}: pip install -U 'ray'")
    return ray


def _knock(address: str) -> None:
    """Say at once what Ray finds out in minutes: that no server listens there, or that one side alone uses TLS."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)  # `auto`: what a file says, which may be of long ago
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"no Ray cluster at {address}: {_line(error)}") from None
    host, _, port = str(found).rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"no Ray cluster at {address}: an address is host:port, as in 10.0.0.1:6379, or auto")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE  # nothing is sent, Ray itself will verify
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS) as plain:
            try:
                stranger.wrap_socket(plain).close()
                has_tls = True
            except (ssl.SSLError, OSError) as error:
                has_tls = "ALERT" in str(error)  # it wants to see a certificate
    except OSError as error:
        raise ConfigError(f"no Ray cluster at {found}: {error.strerror or error}") from None
    if has_tls != uses_tls():
        what = (
            "speaks TLS: set RAY_USE_TLS=1 and its certificates" if has_tls else "does not speak TLS: set RAY_USE_TLS=0"
        )
        raise ConfigError(f"the Ray cluster at {address} {what} (see {GUIDE})")
    if has_tls and (reason := _kept_out(host.strip("[]"), int(port))):
        raise ConfigError(
            f"the Ray cluster at {address} does not let us in: set RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and "
            f"RAY_TLS_CA_CERT to a certificate that its authority has signed (see {GUIDE}; {reason})"
        )


def _kept_out(host: str, port: int) -> str:
    """Why our certificate is not taken, or the other side's is not of our authority; empty where nothing is wrong."""
    own, key, authority = (os.environ.get(f"RAY_TLS_{name}", "") for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT"))
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(own, key)
    except (OSError, ssl.SSLError) as error:
        return f"they cannot be read: {error}"
    context.check_hostname = False  # Ray itself looks at names
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(socket.create_connection((host, port), timeout=KNOCK_SECONDS)) as secure:
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            # With TLS 1.3 a certificate that is refused shows when something is read.
            return "" if secure.recv(1) else "it ends the connection"
    except ssl.SSLError as error:
        return error.reason or str(error)
    except ConnectionError:
        return "it ends the connection"
    except OSError:
        return ""  # of other trouble Ray has more to say


def _init(ray: ModuleType, options: RayOptions, settings: Mapping[str, object]) -> None:
    try:
        # A copy: Ray writes into it where it has put the working directory.
        ray.init(
            runtime_env=copy.deepcopy(options.runtime_env),
            logging_level="error",
            log_to_driver=_wants_prints(),
            **settings,
        )
    except ConnectionError as error:
        where = settings["address"]
        raise ConfigError(
            f"the Ray cluster at {where} does not let us in: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or its "
            f"certificates, as on the cluster (see {GUIDE}; {_line(error)})"
        ) from None
    except ray.exceptions.AuthenticationError as error:
        how = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
        raise ConfigError(f"the Ray cluster asks for its token: {how} ({_line(error)})") from None
    except (RuntimeError, ValueError) as error:  # versions that do not fit, an address that is none
        raise ConfigError(f"cannot connect to Ray at {settings['address']}: {_line(error)}") from None


@contextlib.contextmanager
def _private(need: Need) -> Iterator[Mapping[str, object]]:
    """A cluster of this machine alone: on the loopback interface, with a token of its own, gone with the run."""
    from ray._private import ray_constants

    store = need.store_bytes(need.workers) + SPARE_BYTES
    shared = Path("/dev/shm")
    if shared.is_dir() and store > shutil.disk_usage(shared).free:
        raise ConfigError(
            f"{need.workers} workers need {size(store)} of shared memory, {shared} has "
            f"{size(shutil.disk_usage(shared).free)} left: use fewer workers, or --engine processes"
        )
    if need.vector_bytes is None and shared.is_dir():  # what is not used takes no memory
        store = max(store, shutil.disk_usage(shared).free // 2)
    folder = TemporaryFolder()
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ADDRESS": ""}
    # Ray keeps to the loopback interface only on systems whose firewall asks the user about every open port. It has no
    # setting for that elsewhere, so what decides it there is set here.
    reaches_out = ray_constants.ENABLE_RAY_CLUSTER
    try:
        with _environment({**environment, ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"}):
            ray_constants.ENABLE_RAY_CLUSTER = False
            _forget_token()
            yield {
                "address": "local",
                "num_cpus": max(os.cpu_count() or 1, int(need.workers * need.resources["CPU"] + 1)),
                "object_store_memory": store,
                "include_dashboard": False,
                "_temp_dir": str(
                    folder.path / "r"
                ),  # which Ray makes readable to all users; the folder around it is ours alone
                "_system_config": HEALTH_CHECKS,
            }
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = reaches_out
        _forget_token()
        folder.close()


def _forget_token() -> None:
    """Ray remembers the token that it read first, and whether to use one; the next cluster may differ."""
    with contextlib.suppress(ImportError, AttributeError):
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Environment variables set for a while; those that Ray sets meanwhile go too."""
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_") and name not in before]:
            del os.environ[name]
        os.environ.update({name: before[name] for name in wanted if name in before})


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM when it connects; ours has a run to save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wants_prints() -> bool:
    """Whether the user wants what workers print, and all that Ray has to say, among the driver's own output."""
    return os.environ.get("RAY_LOG_TO_DRIVER", "0").lower() in ("1", "true")


@contextlib.contextmanager
def _own_words(log: Log) -> Iterator[None]:
    """What Ray says about lost machines, in many lines on standard output, goes to the run's log."""
    from ray._private import worker

    before = getattr(worker, "print_to_stdstream", None)
    if before is None or _wants_prints():
        yield
        return

    def note(data: dict[str, Any], *rest: object, **more: object) -> None:
        log.note("Ray says:", "\n".join(data.get("lines", [])))

    worker.print_to_stdstream = note
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
