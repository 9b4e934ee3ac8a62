"""Subscription to `AzureRedisEvents` on one connection.

The retries, health checks and reconnecting pub/sub of the Redis client are not used, because they hide a lost
connection and the gap. They also do not notice a network that drops packets.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from drydock_agent import wire
from drydock_agent.redis.errors import CacheConnectionLost, RefusedByCache
from drydock_agent.redis.login import Login
from drydock_agent.settings.caches import Cache

# Optional imports of the client for its own telemetry; they cost 3 MB, and the agent does not use them.
_UNWANTED = [name for name in ("opentelemetry", "psutil") if name not in sys.modules]
for _name in _UNWANTED:
    # None is how Python itself marks a module that must not be imported.
    sys.modules[_name] = cast(ModuleType, None)
try:
    import redis
    from redis.backoff import NoBackoff
    from redis.driver_info import DriverInfo
    from redis.retry import Retry
finally:
    for _name in _UNWANTED:
        del sys.modules[_name]

CHANNEL = "AzureRedisEvents"
CONNECT_SECONDS = 5.0
# Azure Cache for Redis is Redis 6, without modules, until it is retired; Azure Managed Redis is Redis 7.4 or newer.
NEWEST_MAJOR = 6
# Time limit for each reply while connecting, and for the rest of a reply that has begun to arrive.
ANSWER_SECONDS = 3.0

_REFUSALS = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError)

LINE = "message"
PONG = "pong"
UNSUBSCRIBED = "unsubscribe"


@dataclass(slots=True, frozen=True)
class CacheReply:
    """One reply of the server: `kind` is Redis' word (`message`, `pong`, …) or empty, `data` the bytes of the line."""

    kind: str
    data: bytes = b""


class Subscription:
    """Subscription that the server has acknowledged. For one thread; only `cut` may be called from another."""

    def __init__(self, cache: Cache, login: Login, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Connect and subscribe. `answer_seconds` is the time limit for each reply. Raises `RefusedByCache` or
        `CacheConnectionLost`.
        """
        # Why this is no longer an Azure Cache for Redis (then there are no notifications), or empty.
        self.replacement = ""
        self._connection: Any = _connection(cache, login, answer_seconds)
        try:
            try:
                with _translated_errors():
                    self._connection.connect()
                    # Ping before subscribing: without the permission to ping, a dead connection would not be noticed.
                    self._connection.send_command("PING")
                    self._connection.read_response()
                    self.replacement = _replacement(cache, self._server())
                    self._connection.send_command("SUBSCRIBE", CHANNEL)
            except _NoReply as error:
                raise CacheConnectionLost("the cache did not answer") from error
            deadline = time.monotonic() + answer_seconds
            while (heard := self.read(deadline - time.monotonic())) is None or heard.kind != "subscribe":
                if time.monotonic() >= deadline:
                    raise CacheConnectionLost("the cache did not answer")
        except CacheConnectionLost:
            self.close()
            raise

    def _server(self) -> dict[str, Any]:
        """Return what the server states about itself in HELLO, for which no permission is needed. Empty if it does not
        support HELLO.
        """
        try:
            self._connection.send_command("HELLO")
            answer = self._connection.read_response()
        except redis.ResponseError:
            return {}
        words = answer if isinstance(answer, list) else []
        names = [word.decode("ascii", "replace") if isinstance(word, bytes) else "" for word in words[::2]]
        return dict(zip(names, words[1::2], strict=False))

    def read(self, seconds: float) -> CacheReply | None:
        """Return the next reply, or None if none has started to arrive within `seconds`, or it is incomplete after
        `answer_seconds` more.

        Raises `CacheConnectionLost`, or `RefusedByCache` if the server refuses.
        """
        try:
            with _translated_errors():
                if not self._connection.can_read(timeout=max(seconds, 0.01)):
                    return None
                answer = self._connection.read_response(disconnect_on_error=False)
        except _NoReply:
            return None
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], bytes):
            return CacheReply("")
        data = answer[-1] if isinstance(answer[-1], bytes) else b""
        return CacheReply(answer[0].decode("ascii", "replace"), data)

    def ping(self) -> None:
        """Send a ping. `read` returns the reply. Raises `CacheConnectionLost`."""
        with _translated_errors():
            self._connection.send_command("PING", check_health=False)

    def unsubscribe(self) -> None:
        """Send the command to unsubscribe. The last reply is `unsubscribe`. Raises `CacheConnectionLost`."""
        with _translated_errors():
            self._connection.send_command("UNSUBSCRIBE", CHANNEL, check_health=False)

    def cut(self) -> None:
        """Abort a read in progress. May be called from any thread."""
        sock = self._connection._sock
        if sock is not None:
            # Close the socket below TLS: TLS shutdown would wait for the peer or for the reading thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


def _replacement(cache: Cache, server: dict[str, Any]) -> str:
    """Return why another service seems to respond under the name of an Azure Cache for Redis, or an empty string. This
    happens after a migration to Azure Managed Redis, which takes over the DNS name.
    """
    name = "" if cache.socket or cache.address[0] != cache.host else canonical_name(cache.host)
    if name.endswith(wire.CACHE_HOSTS_WITHOUT_NOTIFICATIONS):
        return f"its name leads to {name}, an Azure Managed Redis, which publishes no maintenance notifications"
    version = server.get("version")
    major = version.partition(b".")[0] if isinstance(version, bytes) else b""
    # Other servers, for example Valkey, are not Azure services. The configured kind is used for them.
    if server.get("server") == b"redis" and (server.get("modules") or (major.isdigit() and int(major) > NEWEST_MAJOR)):
        stated = version.decode("ascii", "replace") if isinstance(version, bytes) else "with modules"
        return f"the server is Redis {stated}, an Azure Managed Redis, which publishes no maintenance notifications"
    return ""


def canonical_name(host: str) -> str:
    """Return the canonical DNS name of a host in lower case, or an empty string if it cannot be resolved."""
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except (OSError, UnicodeError):
        return ""
    return answers[0][3].rstrip(".").lower()


class _NoReply(Exception):
    """No complete reply arrived in time."""


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Convert exceptions of the Redis client to those of `errors`, as a context manager."""
    try:
        yield
    except _REFUSALS as error:
        raise RefusedByCache(_sentence(error)) from error
    except redis.TimeoutError as error:
        if str(error).startswith("Timeout reading"):
            raise _NoReply from error
        raise CacheConnectionLost(_sentence(error)) from error
    except (redis.RedisError, OSError, ValueError) as error:
        # A peer with another protocol causes a ValueError.
        raise CacheConnectionLost(_sentence(error)) from error


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__


class _Secure(redis.Connection):
    """TLS connection that requires the certificate of the cache's host name, also if it connects to another address."""

    def __init__(self, *, name: str, context: ssl.SSLContext, **more: Any) -> None:
        self._name = name
        self._context = context
        super().__init__(**more)  # type: ignore[no-untyped-call]

    def _connect(self) -> socket.socket:
        sock = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._context.wrap_socket(sock, server_hostname=self._name)
        except OSError:
            sock.close()
            raise


def _connection(cache: Cache, login: Login, answer_seconds: float) -> Any:
    common: dict[str, Any] = {
        "username": login.username or None,
        "password": login.secret or None,
        "socket_timeout": answer_seconds,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        # Empty: the client does not send CLIENT SETINFO, for which the agent needs no right.
        "driver_info": DriverInfo(name="", lib_version=""),
        # The newer protocol mixes notifications with replies to pings.
        "protocol": 2,
        "decode_responses": False,
    }
    unix: Any = redis.UnixDomainSocketConnection
    plain: Any = redis.Connection
    if cache.socket:
        return unix(path=cache.socket, **common)
    host, port = cache.address
    if not cache.tls:
        return plain(host=host, port=port, **common)
    try:
        context = ssl.create_default_context(cafile=cache.ca_file or None)
    except (ssl.SSLError, OSError) as error:
        raise CacheConnectionLost(f"{cache.ca_file} holds no certificates") from error
    return _Secure(name=cache.host, context=context, host=host, port=port, **common)
