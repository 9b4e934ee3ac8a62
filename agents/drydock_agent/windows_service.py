"""The Windows service: installation, log, event log, watchdog, and a stop that lets hooks end."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from logging.handlers import NTEventLogHandler, RotatingFileHandler
from pathlib import Path
from typing import Any, TypeVar

import pywintypes
import servicemanager
import win32service
import win32serviceutil
import winerror

from drydock_agent import loop
from drydock_agent.clock import Clock
from drydock_agent.logs import formatter, log_uncaught_errors
from drydock_agent.platforms.windows import data_dir, heartbeat, make_private_folder, unsafe_reason
from drydock_agent.settings.load import Settings, load
from drydock_agent.version import agent_version

NAME = "DrydockAgent"
DISPLAY_NAME = "Drydock agent"
DESCRIPTION = "Reports scheduled events of this machine to Drydock, runs hooks, and sends approvals to Azure."
# Windows restarts the service after its first, second and each further failure. It counts those of a day.
RESTART_MILLISECONDS = (5_000, 30_000, 60_000)
RESET_SECONDS = 86_400
# As in the unit of systemd.
WATCHDOG_SECONDS = 180.0
PENDING_SECONDS = 2.0
# Time for a stop in addition to the time limit of hooks.
STOP_SECONDS = 60.0
LOG_BYTES, LOG_FILES = 10_000_000, 5

T = TypeVar("T")

log = logging.getLogger("drydock_agent")


class ServiceLog(RotatingFileHandler):
    """Log file that grows while another program keeps it open, because Windows then does not let it be renamed."""

    def doRollover(self) -> None:  # noqa: N802 - logging's own name
        try:
            super().doRollover()
        except OSError:
            self.stream = self._open()


class EventLog(NTEventLogHandler):
    """Handler for the event log: errors, and records with the extra field `event_log`."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or bool(getattr(record, "event_log", False))


class Service(win32serviceutil.ServiceFramework):
    """The service as Windows sees it. A stop and a shutdown of the machine are reported as pending until the hooks have
    ended.
    """

    _svc_name_ = NAME
    _svc_display_name_ = DISPLAY_NAME

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.stop, self.ended = threading.Event(), threading.Event()
        self.hook_seconds = 0.0

    def GetAcceptedControls(self) -> int:  # noqa: N802 - pywin32's own name
        # Before an ordinary shutdown signal, which leaves a service five seconds.
        accepted = int(super().GetAcceptedControls())  # type: ignore[no-untyped-call]
        return accepted | win32service.SERVICE_ACCEPT_PRESHUTDOWN

    def SvcStop(self) -> None:  # noqa: N802 - pywin32's own name
        self._report_pending()
        self.stop.set()
        threading.Thread(target=self._keep_pending, name="stop", daemon=True).start()

    def SvcOtherEx(self, control: int, event_type: int, data: object) -> None:  # noqa: N802 - pywin32's own name
        if control == win32service.SERVICE_CONTROL_PRESHUTDOWN:
            self.SvcStop()

    def SvcInterrogate(self) -> None:  # noqa: N802 - pywin32's own name
        if self.stop.is_set():
            self._report_pending()
        else:
            self.ReportServiceStatus(win32service.SERVICE_RUNNING)

    def SvcDoRun(self) -> None:  # noqa: N802 - pywin32's own name
        """Run the agent. An exception ends the service with an error, after which Windows starts it again."""
        try:
            serve(self.stop, self._limit_known)
        finally:
            self.ended.set()

    def _limit_known(self, hook_seconds: float) -> None:
        self.hook_seconds = hook_seconds
        _change_service(_allow_shutdown, hook_seconds)

    def _report_pending(self) -> None:
        self.ReportServiceStatus(win32service.SERVICE_STOP_PENDING, waitHint=30_000)

    def _keep_pending(self) -> None:
        deadline = time.monotonic() + self.hook_seconds + STOP_SECONDS
        while not self.ended.wait(PENDING_SECONDS) and time.monotonic() < deadline:
            self._report_pending()


def serve(stop: threading.Event, limit_known: Callable[[float], None]) -> None:
    """Run the agent as a service until `stop` is set. `limit_known` receives the time limit of hooks in seconds.
    Raises what ends the agent early, after it is logged.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[EventLog(NAME)])
    try:
        settings = load()
        _log_to_file(settings)
        limit_known(settings.hook_timeout_seconds)
        heartbeat.at = time.monotonic()
        threading.Thread(target=_watchdog, args=(stop,), name="watchdog", daemon=True).start()
        log.info("The agent %s has started.", agent_version(), extra={"event_log": True})
        loop.run(settings, clock=Clock(), stop=stop, hooks_may_end=True)
        log.info("The agent has stopped.", extra={"event_log": True})
    except Exception as error:
        log.critical("The agent ended with an error: %s", error, exc_info=True)
        raise


def _log_to_file(settings: Settings) -> None:
    folder = Path(data_dir(os.environ)) / "Logs"
    make_private_folder(folder)
    handler = ServiceLog(folder / "agent.log", maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    handler.setFormatter(formatter(settings.log_format))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    log_uncaught_errors()


def _watchdog(stop: threading.Event) -> None:
    """End the process if no part of the agent makes progress. Windows starts it again."""
    while not stop.wait(WATCHDOG_SECONDS / 10):
        if heartbeat.age() > WATCHDOG_SECONDS:
            log.critical("The agent made no progress for %.0f s and is started again.", heartbeat.age())
            logging.shutdown()
            os._exit(1)


def host() -> None:
    """Hand this process to the service control manager. Return when the service has stopped."""
    servicemanager.Initialize()
    servicemanager.PrepareToHostSingle(Service)
    servicemanager.StartServiceCtrlDispatcher()  # type: ignore[no-untyped-call]


def command(word: str) -> tuple[int, str]:
    """Run `service install` or `service remove`. Return the exit status and a sentence for the user."""
    try:
        return _remove() if word == "remove" else _install()
    except pywintypes.error as error:
        return 1, f"The service manager of Windows refused it: {error.strerror}"


def _install() -> tuple[int, str]:
    """Create the service, or change it to the program of this installation. It is not started."""
    python, program = Path(sys.base_prefix) / "python.exe", Path(__file__).with_name("windows_main.py")
    for path in (*_trusted_files(python.parent), program.parent, program.parents[1]):
        if word := unsafe_reason(path):
            return 1, f"The service would run with the rights of the system, but {path} {word}."
    line = f'"{python}" -I -S "{program}"'
    kind, start = win32service.SERVICE_WIN32_OWN_PROCESS, win32service.SERVICE_AUTO_START
    fault = win32service.SERVICE_ERROR_NORMAL
    manager = win32service.OpenSCManager(None, None, win32service.SC_MANAGER_ALL_ACCESS)
    try:
        access = win32service.SERVICE_ALL_ACCESS
        service = win32service.CreateService(
            manager, NAME, DISPLAY_NAME, access, kind, start, fault, line, None, False, None, None, None
        )
        win32service.CloseServiceHandle(service)
    except pywintypes.error as error:
        if error.winerror != winerror.ERROR_SERVICE_EXISTS:
            raise
    finally:
        win32service.CloseServiceHandle(manager)
    _change_service(_configure, line)
    return 0, f"The service {NAME} is installed. Start it with: Start-Service {NAME}"


def _trusted_files(folder: Path) -> list[Path]:
    """Return the folder of the machine's Python and the files in it that the service loads."""
    libraries = [folder / name for name in ("Lib", "DLLs")]
    return [folder, *sorted(folder.glob("*.exe")), *sorted(folder.glob("*.dll")), *filter(Path.is_dir, libraries)]


def _configure(service: Any, line: str) -> None:
    win32service.ChangeServiceConfig(
        service,
        win32service.SERVICE_WIN32_OWN_PROCESS,
        win32service.SERVICE_AUTO_START,
        win32service.SERVICE_ERROR_NORMAL,
        line,
        None,
        False,
        None,
        None,
        None,
        DISPLAY_NAME,
    )
    restarts = [(win32service.SC_ACTION_RESTART, milliseconds) for milliseconds in RESTART_MILLISECONDS]
    failure = {"ResetPeriod": RESET_SECONDS, "RebootMsg": "", "Command": "", "Actions": restarts}
    change = win32service.ChangeServiceConfig2
    change(service, win32service.SERVICE_CONFIG_DESCRIPTION, DESCRIPTION)
    change(service, win32service.SERVICE_CONFIG_FAILURE_ACTIONS, failure)
    # Also restart it when it ends in an orderly way, but with an error.
    change(service, win32service.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, True)


def _allow_shutdown(service: Any, hook_seconds: float) -> None:
    """Let Windows wait for hooks at a shutdown. By default it waits for ten seconds."""
    milliseconds = int((hook_seconds + STOP_SECONDS) * 1000)
    win32service.ChangeServiceConfig2(service, win32service.SERVICE_CONFIG_PRESHUTDOWN_INFO, milliseconds)


def _change_service(change: Callable[[Any, T], None], value: T) -> None:
    manager = win32service.OpenSCManager(None, None, win32service.SC_MANAGER_CONNECT)
    try:
        service = win32service.OpenService(manager, NAME, win32service.SERVICE_ALL_ACCESS)
        try:
            change(service, value)
        finally:
            win32service.CloseServiceHandle(service)
    finally:
        win32service.CloseServiceHandle(manager)


def _remove() -> tuple[int, str]:
    """Stop the service, wait until its hooks have ended, and delete it with its source in the event log."""
    try:
        win32serviceutil.StopService(NAME)
    except pywintypes.error as error:
        if error.winerror == winerror.ERROR_SERVICE_DOES_NOT_EXIST:
            return 0, f"There is no service {NAME}."
        if error.winerror != winerror.ERROR_SERVICE_NOT_ACTIVE:
            raise
    progress, since = None, time.monotonic()
    while (status := win32serviceutil.QueryServiceStatus(NAME))[1] == win32service.SERVICE_STOP_PENDING:
        # The checkpoint of the service.
        if status[5] != progress:
            progress, since = status[5], time.monotonic()
        elif time.monotonic() - since > STOP_SECONDS:
            return 1, f"The service {NAME} does not stop. End its process, and try again."
        time.sleep(PENDING_SECONDS)
    win32serviceutil.RemoveService(NAME)
    return 0, f"The service {NAME} is removed."
