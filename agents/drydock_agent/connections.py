"""HTTP client for small responses. It reuses connections, and another thread can abort its calls."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drydock_agent.small_http_client import requests  # isort: skip - before urllib3, so that nothing else imports it first
import urllib3
import urllib3.connection
import urllib3.connectionpool


class NoAnswer(Exception):
    """A call got no usable response. `timed_out` is False if the peer refused or closed the connection."""

    def __init__(self, sentence: str, *, timed_out: bool = False) -> None:
        super().__init__(sentence)
        self.timed_out = timed_out


class Interrupted(Exception):
    """A call was aborted or not started because the agent stops. Only the supervisor catches this."""


@dataclass(slots=True, frozen=True)
class Answer:
    """HTTP response: status, headers (case-insensitive) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """HTTP session for one thread. It uses only the proxies in `proxies`, never those of the environment, and follows
    no redirects.

    `interrupt()` may be called from any thread. It closes every open socket, so that the current call ends at once.
    """

    def __init__(
        self, *, headers: Mapping[str, str], proxies: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.clear()
        self._session.headers.update(headers)
        self._adapter = _CuttableAdapter(tls)
        self._session.mount("http://", self._adapter)
        self._session.mount("https://", self._adapter)
        self._proxies = dict(proxies or {})
        self._prepared: requests.PreparedRequest | None = None
        self._interrupted = threading.Event()
        # Monotonic time at which the current call becomes overdue, or None.
        self._overdue_at: float | None = None

    def send(
        self,
        method: str,
        url: str,
        *,
        timeout: tuple[float, float],
        limit: int,
        whole: float | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        cut: bool = False,
    ) -> Answer:
        """Send one request and return the response. `timeout` is (connect, read) in seconds. A body longer than `limit`
        bytes is truncated if `cut`, else it raises `NoAnswer`. `whole` is the maximum duration of the call in seconds,
        which `cut_if_overdue()` enforces. Raises `NoAnswer`, and `Interrupted` after `interrupt()`.
        """
        if self._interrupted.is_set():
            raise Interrupted("the agent is stopping")
        self._overdue_at = None if whole is None else time.monotonic() + whole
        try:
            # The adapter is called directly: it skips cookies, hooks and redirects, half the time of a call.
            prepared = self._prepare(method, url, headers, body)
            response = self._adapter.send(prepared, stream=True, timeout=timeout, proxies=self._proxies)
            with response:
                content = response.raw.read(limit + 1, decode_content=True)
                if len(content) > limit and not cut:
                    raise NoAnswer(f"the answer is longer than {limit} bytes")
                return Answer(response.status_code, response.headers, content[:limit])
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if self._interrupted.is_set():
                raise Interrupted("the agent is stopping") from error
            late = isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError)
            raise NoAnswer(_root_cause(error), timed_out=late) from error
        finally:
            self._overdue_at = None

    def _prepare(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None
    ) -> requests.PreparedRequest:
        # The poll is the same request each second, and preparing it takes a quarter of the time.
        last = self._prepared
        if last is not None and headers is None and body is None and (last.method, last.url) == (method, url):
            return last
        prepared = self._session.prepare_request(requests.Request(method, url, headers=headers, data=body))
        self._prepared = prepared if headers is None and body is None else None
        return prepared

    def interrupt(self) -> None:
        """Abort the current call and refuse all further ones. May be called from any thread."""
        self._interrupted.set()
        self._adapter.cut()

    def cut_if_overdue(self) -> None:
        """Abort the current call if it has lasted longer than its `whole` seconds. A read timeout is not enough: it
        never ends a response that arrives byte by byte.
        """
        overdue_at = self._overdue_at
        if overdue_at is not None and time.monotonic() > overdue_at:
            self._adapter.cut()

    def close(self) -> None:
        """Close the session. Call this from the thread that uses it."""
        self._session.close()


class _CuttableAdapter(requests.adapters.HTTPAdapter):
    """Adapter of `requests` that tracks its open connections, so that they can be closed, and shares one TLS
    context.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._opened: weakref.WeakSet[urllib3.connection.HTTPConnection] = weakref.WeakSet()
        self._tls = tls
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._tls)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs, ssl_context=self._tls)
        self._watch(manager)
        return manager

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        # The shared context has the certificates; requests would have each connection read them again.
        conn.cert_reqs = "CERT_REQUIRED"

    def cut(self) -> None:
        for connection in list(self._opened):
            sock = connection.sock
            if sock is not None:
                # Close the socket below TLS: TLS shutdown would wait for the peer or for the reading thread.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _watch(self, manager: Any) -> None:
        opened = self._opened

        class Plain(urllib3.connection.HTTPConnection):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                opened.add(self)

        class Secure(urllib3.connection.HTTPSConnection):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                opened.add(self)

        class PlainPool(urllib3.connectionpool.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.connectionpool.HTTPSConnectionPool):
            ConnectionCls = Secure

        manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


def _root_cause(error: BaseException) -> str:
    """Return the innermost cause of an exception as text. The outer ones only repeat addresses and internal objects."""
    cause: BaseException = error
    while True:
        # urllib3 keeps the reason in a field, among its arguments, in a tuple of words and reason, or as the cause.
        among = cause.args[0] if cause.args and isinstance(cause.args[0], tuple) else cause.args
        inner = [
            one for one in (getattr(cause, "reason", None), *among, cause.__cause__) if isinstance(one, BaseException)
        ]
        if not inner:
            break
        cause = inner[0]
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    text = str(cause)
    # urllib3 puts the pool in front: "HTTPConnection(host=..., port=80): Read timed out. (read timeout=10)".
    return text.split(": ", 1)[-1] if text.startswith("HTTP") else text or type(cause).__name__
