"""Embedded servers: real Postgres and real Valkey from Python wheels, for the demo and the tests.

They are child processes of the process that requests them, and always end with it; `Urls.watch` restarts one that ends
earlier. If `DATABASE_URL` or `REDIS_URL` is set, that server is used, and no embedded one is started for it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from fleet.configuration import table
from fleet.embedded.folder import ServerProblem, held, temporary_folder
from fleet.embedded.postgres import postgres_server
from fleet.embedded.server import Server
from fleet.embedded.valkey import valkey_server

__all__ = [
    "Server",
    "ServerProblem",
    "Urls",
    "held",
    "postgres_server",
    "servers",
    "temporary_folder",
    "valkey_server",
]


@dataclass(frozen=True, slots=True)
class Urls:
    """URLs of the servers, in the form of the settings of the same names; `own` are the embedded servers that were
    started.
    """

    database: str
    redis: str
    own: tuple[Server, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables for a child process. The `_FILE` variables are empty, so that these values
        apply.
        """
        return {
            "DATABASE_URL": self.database,
            "REDIS_URL": self.redis,
            "DATABASE_URL_FILE": "",
            "REDIS_URL_FILE": "",
        }

    def watch(self) -> list[str]:
        """Restart embedded servers that have ended, and return a message about each. Raises ServerProblem."""
        return [said for server in self.own if (said := server.watch())]


@contextmanager
def servers(folder: Path, environment: dict[str, str], *, durable: bool = True) -> Iterator[Urls]:
    """Yield the URLs of the servers that the environment names, or of embedded ones with their data in `folder`.

    `durable` is explained at `postgres_server`. Call it in the main thread. Raises ServerProblem.
    """
    database_url, redis_url = table["DATABASE_URL"].text(environment), table["REDIS_URL"].text(environment)
    own: list[Server] = []
    with ExitStack() as stack:
        if not database_url or not redis_url:
            folder = stack.enter_context(held(folder))
        if database_url:
            with reached("DATABASE_URL", database_url):
                psycopg.connect(database_url, connect_timeout=5).close()
        else:
            own.append(stack.enter_context(postgres_server(folder, durable=durable)))
            database_url = own[-1].url
        if redis_url:
            with (
                reached("REDIS_URL", redis_url),
                redis.Redis.from_url(redis_url, socket_connect_timeout=5, socket_timeout=5) as client,
            ):
                client.ping()
        else:
            own.append(stack.enter_context(valkey_server(folder)))
            redis_url = own[-1].url
        yield Urls(database=database_url, redis=redis_url, own=tuple(own))


@contextmanager
def reached(name: str, url: str) -> Iterator[None]:
    """Raise ServerProblem if the server of this setting does not let us in inside the block."""
    try:
        yield
    except (psycopg.OperationalError, redis.RedisError, ValueError) as error:
        said, parts = " ".join(str(error).split()), urlsplit(url)
        without_password = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise ServerProblem(f"{name} names {without_password}, which does not let us in: {said}") from error
