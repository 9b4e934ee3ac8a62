"""Command line of the agent: `python -m drydock_agent run | check | once | trust KEY | service WORD`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from drydock_agent import loop
from drydock_agent.backend.signatures import key_of
from drydock_agent.check import check
from drydock_agent.clock import Clock
from drydock_agent.lazy_import import LazyImport
from drydock_agent.logs import log_to_stderr
from drydock_agent.machine import UnknownMachine
from drydock_agent.platforms import system
from drydock_agent.service_manager import STOPPING, notify
from drydock_agent.settings.load import ConfigError, Settings, load
from drydock_agent.spool.store import SpoolBusy, SpoolError
from drydock_agent.state_folder import StateError, StateFolder
from drydock_agent.version import agent_version

if TYPE_CHECKING:
    from drydock_agent import windows_service
else:
    windows_service = LazyImport("drydock_agent.windows_service")

USAGE = """usage: drydock-agent run | check | once | trust KEY | service install | service remove | --version

  run      watch and forward until stopped
  check    report what this machine can reach
  once     poll once, deliver once, request orders once
  trust    trust this signing key (base64) and no other; restart the agent after it
  service  install or remove the service of Windows

Settings come from DRYDOCK_* variables, then from the TOML file that DRYDOCK_CONFIG names."""

NO_SERVICE = "The command service is for Windows only. On Linux a unit of systemd runs the agent."

log = logging.getLogger("drydock_agent")


class Stopped(BaseException):
    """Exception that SIGTERM and SIGINT raise in the main thread to stop the agent."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0 for success, 1 for a failed check or delivery, 2 for wrong
    arguments or settings.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments == ["--version"]:
        print(agent_version())
        return 0
    if arguments[:1] == ["service"] and arguments[1:] in (["install"], ["remove"]):
        status, sentence = windows_service.command(arguments[1]) if system.HAS_SERVICE else (2, NO_SERVICE)
        print(sentence, file=sys.stderr if status else sys.stdout)
        return status
    command, *rest = arguments or [""]
    if command not in _COMMANDS or len(rest) != (1 if command == "trust" else 0):
        print(USAGE, file=sys.stderr)
        return 2
    # Errors of other commands are printed for a terminal; `run` writes every error to its log.
    in_the_log = command == "run" and os.environ.get("DRYDOCK_LOG_FORMAT", "").strip().lower() == "json"
    try:
        if in_the_log:
            log_to_stderr("info", "json")
        settings = load()
        in_the_log = command == "run" and settings.log_format == "json"
        log_to_stderr(settings.log_level, settings.log_format)
        return _COMMANDS[command](settings, *rest)
    except ConfigError as error:
        return _ended(2, str(error), in_the_log=in_the_log)
    except SpoolBusy:
        return _ended(1, f"Another agent uses the state folder {settings.state_dir}.", in_the_log=in_the_log)
    except SpoolError as error:
        words = f"The spool in {settings.state_dir} cannot be used: {error}."
        return _ended(1, words, in_the_log=in_the_log)
    except StateError as error:
        return _ended(1, str(error), in_the_log=in_the_log)


def _ended(status: int, sentence: str, *, in_the_log: bool) -> int:
    if in_the_log:
        log.error("%s", sentence)
    else:
        print(sentence, file=sys.stderr)
    return status


def _run(settings: Settings) -> int:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        loop.run(settings, clock=Clock(), stop=threading.Event())
    except Stopped:
        log.info("Stopped.")
    return 0


def _once(settings: Settings) -> int:
    try:
        wrong = loop.once(settings, clock=Clock())
    except UnknownMachine as error:
        wrong = [f"This machine cannot be identified: {error}."]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


def _check(settings: Settings) -> int:
    findings = check(settings, clock=Clock())
    for finding in findings:
        print(f"{'ok  ' if finding.good else 'BAD '} {finding.sentence}")
    return 0 if all(finding.good for finding in findings) else 1


def _trust(settings: Settings, public_key: str) -> int:
    try:
        key = key_of(public_key)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    StateFolder(settings.state_dir, Clock()).keep_signing_keys({key.id: key.public_key})
    print(f"Orders signed by the key {key.id}, and by no other, are trusted once the agent has been restarted.")
    return 0


_COMMANDS: dict[str, Callable[..., int]] = {"run": _run, "check": _check, "once": _once, "trust": _trust}


def _stop(number: int, frame: FrameType | None) -> None:
    # Ignore further signals during the cleanup, which takes less than a second.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notify(STOPPING)
    raise Stopped


if __name__ == "__main__":
    sys.exit(main())
