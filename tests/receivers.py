"""Receivers for tests: real servers on loopback, in threads of the test, that note what they got."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came; names of headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """Where it listens, what it got, and what it answers to the next ones."""

    port: int
    got: list[Received] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"thank you"
    scheme: str = "http"
    # Status, headers and body for a request, in place of those above.
    answer: Callable[[Received], tuple[int, Mapping[str, str], bytes]] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    """Hands each request to `take`, which may read a whole body and answers with one; logs nothing."""

    protocol_version = "HTTP/1.1"
    # Headers and body leave in two packets; without this the second waits for the first one's acknowledgement.
    disable_nagle_algorithm = True

    def take(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.take()

    # The names are the base class's.
    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of an HTTP server with this handler, for the length of a block."""
    server = Server(("127.0.0.1", 0), handler)
    with in_a_thread(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def in_a_thread(server: BaseServer) -> Iterator[None]:
    """The server serves for the length of a block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """An HTTP server for the length of a block."""

    class Here(Handler):
        def take(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = Received(self.command, self.path, headers, self.body())
            made.got.append(got)
            stated: tuple[int, Mapping[str, str], bytes] = (made.status, made.headers, made.body)
            status, answered, content = made.answer(got) if made.answer else stated
            self.answer(status, content, answered)

    server = Server(("127.0.0.1", 0), Here)
    made = Receiver(server.server_port, scheme="https" if tls else "http")
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with in_a_thread(server):
        yield made


@contextmanager
def speaking(say: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Yield the port of a TCP server that runs `say` on each connection, until the event."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.02)
    threads = []

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            say(connection, ended)

    def accept() -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)
                threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
                threads[-1].start()

    threads.append(threading.Thread(target=accept, daemon=True))
    threads[0].start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        ended.set()
        for thread in threads:
            thread.join(5)
        listener.close()


PLAYED = Path(__file__).parent / "messages" / "played_names.py"
