"""Connecting to a Ray cluster, or starting a private one; what is checked before a run begins on it.

This module can be imported without Ray.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orlomo.errors import ConfigError
from orlomo.records.log import Log

OLDEST = (2, 60)

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1500,
    "health_check_failure_threshold": 3,
}
"""With these a frozen machine or a pulled cable is noticed within 10 s; Ray's own values take over a minute."""

SPARE_BYTES = 100 << 20
"""In the object store, beyond a run's own vectors."""

KNOCK_SECONDS = 5.0

GUIDE = "docs/how-to/ray.md"


@dataclass(frozen=True)
class RayOptions:
    """Which cluster, and what it is to bring to the workers. Not part of a run's config: they do not decide its result.

    Args:
        address: `host:port` of a running cluster, or `auto`; None: RAY_ADDRESS, else a private cluster on this machine.
        runtime_env: Ray's `runtime_env`, passed through: packages, modules and environment variables for the workers.
    """

    address: str | None = None
    runtime_env: dict[str, Any] | None = None

    @property
    def flags(self) -> str:
        """What to give to `orlomo resume`."""
        return f" --address {self.address}" if self.address else ""


@dataclass(frozen=True)
class Need:
    """What a run needs of a cluster."""

    workers: int
    resources: dict[str, float]  # of each
    labels: dict[str, str]  # of the machines
    vector_bytes: int
    task_bytes: int
    carries_momentum: bool = False

    def store_bytes(self, workers: int) -> int:
        """In the object store of a machine with so many of the workers, or with the server of so many.

        For each worker the vector it works on and the two it reports, and one more that is on its way (two, where the
        momentum goes out with it); Ray begins to spill at 80%.
        """
        if workers == 0:
            return 0
        vectors = 3 * workers + (3 if self.carries_momentum else 1)
        return int((vectors * self.vector_bytes + self.task_bytes) / 0.8)


@contextlib.contextmanager
def connection(options: RayOptions, need: Need, log: Log) -> Iterator[None]:
    """Connected to a cluster that the run fits on. A connection that is there already is used, and left as it is."""
    ray = import_ray()
    if ray.is_initialized():
        if options != RayOptions():
            raise ConfigError(
                "this process is connected to Ray already: give address and runtime_env to its ray.init()"
            )
        _check(ray, need, log.warn)
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
            _check_private(ray, need)
        _check(ray, need, log.warn)
        yield


def import_ray() -> Any:
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
    """Say at once what Ray finds out in minutes: that nobody listens there, or speaks TLS where we do not."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)  # `auto`: what a file says, which may be of long ago
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"no Ray cluster at {address}: {_line(error)}") from None
    host, _, port = str(found).rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"no Ray cluster at {address}: an address is host:port, as in 10.0.0.1:6379, or auto")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE  # nothing is told, Ray itself will verify
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS) as plain:
            try:
                stranger.wrap_socket(plain).close()
                has_tls = True
            except (ssl.SSLError, OSError) as error:
                has_tls = "ALERT" in str(error)  # it wants to see a certificate
    except OSError as error:
        raise ConfigError(f"no Ray cluster at {found}: {error.strerror or error}") from None
    if has_tls != _uses_tls():
        what = (
            "speaks TLS: set RAY_USE_TLS=1 and its certificates" if has_tls else "does not speak TLS: set RAY_USE_TLS=0"
        )
        raise ConfigError(f"the Ray cluster at {address} {what} (see {GUIDE})")


def _uses_tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def _init(ray: Any, options: RayOptions, settings: dict[str, Any]) -> None:
    try:
        ray.init(runtime_env=options.runtime_env, logging_level="error", log_to_driver=_wants_prints(), **settings)
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
def _private(need: Need) -> Iterator[dict[str, Any]]:
    """A cluster of this machine alone: on the loopback interface, with a token of its own, gone with the run."""
    from ray._private import ray_constants

    store = need.store_bytes(need.workers) + SPARE_BYTES
    shared = Path("/dev/shm")
    if shared.is_dir() and store > shutil.disk_usage(shared).free:
        raise ConfigError(
            f"{need.workers} workers need {_size(store)} of shared memory, {shared} has "
            f"{_size(shutil.disk_usage(shared).free)} left: use fewer workers, or --engine processes"
        )
    folder = Path(tempfile.mkdtemp(prefix="orlomo-ray-"))
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ADDRESS": ""}
    # Ray has no setting for a cluster that keeps to the loopback interface, but for systems with zealous firewalls:
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
                "_temp_dir": str(folder / "r"),  # which Ray opens to everybody; the folder around it is ours alone
                "_system_config": HEALTH_CHECKS,
            }
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = reaches_out
        _forget_token()
        shutil.rmtree(folder, ignore_errors=True)


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

    def note(data: dict[str, Any], *rest: Any, **more: Any) -> None:
        log.note("Ray says:", "\n".join(data.get("lines", [])))

    worker.print_to_stdstream = note
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _check(ray: Any, need: Need, warn: Callable[[str], None]) -> None:
    """Refuse a run that does not fit; say what is not safe."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    own = ray.get_runtime_context().get_node_id()
    for node in nodes:
        has = node["Resources"].get("object_store_memory", 0.0)
        if node["NodeID"] == own:
            needed, whose = need.store_bytes(need.workers), f"the server with {need.workers} workers needs"
        else:
            here = _fitting(node["Resources"], need)
            needed = need.store_bytes(here)
            whose = f"{here} workers there need"
        if has < needed:
            raise ConfigError(
                f"the object store of {node['NodeManagerAddress']} has {_size(has)}, {whose} {_size(needed)}: start "
                f"Ray there with --object-store-memory {needed + SPARE_BYTES}, or use fewer workers"
            )
    addresses = [node["NodeManagerAddress"] for node in nodes]
    if os.environ.get("RAY_AUTH_MODE") != "token" and not all(map(_is_loopback, addresses)):
        has = "no token, and TLS alone does not guard all of Ray" if _uses_tls() else "neither a token nor TLS"
        warn(
            f"anyone who can reach this Ray cluster can run code on it: it has {has}. Start it with "
            f"RAY_AUTH_MODE=token (see {GUIDE})"
        )
    if len(nodes) > 1 and (seconds := _notices_within()) > 10:
        warn(f"this Ray cluster notices a lost machine only after {seconds:.0f} s; {GUIDE} says how to make it 10 s")


def _fitting(resources: dict[str, float], need: Need) -> int:
    """How many workers Ray could place on a machine of these resources."""
    fitting = [int(resources.get(name, 0.0) // amount) for name, amount in need.resources.items() if amount]
    return min([need.workers, *fitting])


def _check_private(ray: Any, need: Need) -> None:
    """Refuse what no machine will ever join for."""
    [node] = ray.nodes()
    if need.labels or _fitting(node["Resources"], need) == 0:
        each = ", ".join(f"{name}={amount:g}" for name, amount in need.resources.items())
        labels = " and labels" if need.labels else ""
        raise ConfigError(
            f"this machine alone has no room for a worker with {each}{labels}: name a cluster (--address)"
        )


def _notices_within() -> float:
    """Seconds after which the cluster knows of a machine that is gone without a word."""
    try:
        from ray._raylet import Config  # type: ignore[attr-defined]
    except ImportError:
        return 0.0
    each = Config.health_check_period_ms() + Config.health_check_timeout_ms()
    return float(each * Config.health_check_failure_threshold()) / 1000


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
