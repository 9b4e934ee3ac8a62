"""Doubles of the pywin32 modules that the agent uses. Processes, pipes and folders behind them are real ones of Linux.

Values of constants are those of the Windows SDK.
"""
# ruff: noqa: N802 - pywin32's own names

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SYSTEM, ADMINISTRATORS, USERS = "S-1-5-18", "S-1-5-32-544", "S-1-5-32-545"
INSTALLER = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
FULL, READ, WRITE_DATA = 0x1F01FF, 0x1200A9, 0x2
NAMES = {USERS: ("Users", "BUILTIN", 4)}
CONSTANTS: dict[str, dict[str, object]] = {
    "ntsecuritycon": {
        "FILE_WRITE_DATA": 2, "FILE_APPEND_DATA": 4, "FILE_WRITE_EA": 16, "FILE_DELETE_CHILD": 64,
        "FILE_WRITE_ATTRIBUTES": 256, "DELETE": 0x10000, "WRITE_DAC": 0x40000, "WRITE_OWNER": 0x80000,
        "MAXIMUM_ALLOWED": 0x2000000, "GENERIC_ALL": 0x10000000, "GENERIC_WRITE": 0x40000000, "INHERIT_ONLY_ACE": 8,
    },
    "win32con": {
        "HKEY_LOCAL_MACHINE": -2147483646, "KEY_READ": 0x20019, "KEY_WRITE": 0x20006, "REG_SZ": 1,
        "HANDLE_FLAG_INHERIT": 1, "PROCESS_TERMINATE": 1, "PROCESS_QUERY_LIMITED_INFORMATION": 0x1000,
        "SYNCHRONIZE": 0x100000,
    },
    "winnt": {"REG_OPTION_VOLATILE": 1},
    "winerror": {
        "ERROR_SERVICE_EXISTS": 1073, "ERROR_SERVICE_DOES_NOT_EXIST": 1060, "ERROR_SERVICE_NOT_ACTIVE": 1062,
    },
    "win32security": {
        "OWNER_SECURITY_INFORMATION": 1, "DACL_SECURITY_INFORMATION": 4, "SE_FILE_OBJECT": 1, "SDDL_REVISION_1": 1,
        "ACCESS_ALLOWED_ACE_TYPE": 0, "ACCESS_ALLOWED_OBJECT_ACE_TYPE": 5,
    },
    "win32process": {
        "CREATE_SUSPENDED": 4, "CREATE_NO_WINDOW": 0x8000000, "CREATE_NEW_PROCESS_GROUP": 0x200,
        "CREATE_UNICODE_ENVIRONMENT": 0x400, "STARTF_USESTDHANDLES": 0x100, "STARTUPINFO": SimpleNamespace,
    },
    "win32event": {"WAIT_OBJECT_0": 0},
    "win32job": {
        "JobObjectExtendedLimitInformation": 9, "JobObjectBasicAccountingInformation": 1,
        "JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE": 0x2000,
    },
    "win32service": {
        "SERVICE_ACCEPT_STOP": 1, "SERVICE_ACCEPT_PRESHUTDOWN": 0x100, "SERVICE_CONTROL_STOP": 1,
        "SERVICE_CONTROL_INTERROGATE": 4, "SERVICE_CONTROL_PRESHUTDOWN": 15, "SERVICE_STOPPED": 1,
        "SERVICE_STOP_PENDING": 3, "SERVICE_RUNNING": 4, "SERVICE_WIN32_OWN_PROCESS": 16, "SERVICE_AUTO_START": 2,
        "SERVICE_ERROR_NORMAL": 1, "SERVICE_ALL_ACCESS": 0xF01FF, "SC_MANAGER_ALL_ACCESS": 0xF003F,
        "SC_MANAGER_CONNECT": 1, "SC_ACTION_RESTART": 1, "SERVICE_CONFIG_DESCRIPTION": 1,
        "SERVICE_CONFIG_FAILURE_ACTIONS": 2, "SERVICE_CONFIG_FAILURE_ACTIONS_FLAG": 4,
        "SERVICE_CONFIG_PRESHUTDOWN_INFO": 7,
    },
    "win32evtlog": {"EVENTLOG_INFORMATION_TYPE": 4, "EVENTLOG_WARNING_TYPE": 2, "EVENTLOG_ERROR_TYPE": 1},
}  # fmt: skip
MODULES = (
    *CONSTANTS, "pywintypes", "win32api", "win32file", "win32pipe", "win32serviceutil", "servicemanager", "msvcrt",
    "win32evtlogutil",
)  # fmt: skip

# The agent's POSIX names may be hidden from it; these are for the doubles.
_kill, _killpg, _SIGKILL, _SIGCONT = os.kill, os.killpg, signal.SIGKILL, signal.SIGCONT


class WindowsError(Exception):
    """`pywintypes.error`, which is no OSError."""

    def __init__(self, winerror: int, function: str, strerror: str) -> None:
        super().__init__(winerror, function, strerror)
        self.winerror, self.strerror = winerror, strerror


@dataclass
class Permissions:
    """Owner and entries of a file, each entry as `GetAce` returns it. No entries: everything is allowed."""

    owner: str = ADMINISTRATORS
    entries: list[Any] | None = field(default_factory=lambda: [((0, 0), FULL, SYSTEM), ((0, 0), FULL, ADMINISTRATORS)])

    def GetSecurityDescriptorOwner(self) -> str:
        return self.owner

    def GetSecurityDescriptorDacl(self) -> "Permissions | None":
        return None if self.entries is None else self

    def GetAceCount(self) -> int:
        return len(self.entries or ())

    def GetAce(self, number: int) -> Any:
        found = (self.entries or [])[number]
        if found is NotImplemented:
            raise NotImplementedError("ACE type not supported")
        return found


class Handle:
    """One end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def Detach(self) -> int:
        return self.descriptor


class Process:
    """A process that waits until it is resumed."""

    def __init__(self, command: list[str], start: Any, environment: dict[str, str], folder: str) -> None:
        suspended = ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command]
        self.popen = subprocess.Popen(
            suspended, stdin=start.hStdInput.descriptor, stdout=start.hStdOutput.descriptor,
            stderr=start.hStdError.descriptor, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
        self.job: Job | None = None
        self.resumed = False
        self.pid = self.popen.pid

    def kill(self) -> None:
        try:
            _killpg(self.pid, _SIGKILL)
        except ProcessLookupError:
            return
        if not self.resumed:
            _killpg(self.pid, _SIGCONT)


class Opened:
    """A process of another agent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        _kill(self.pid, _SIGKILL)


class Job:
    """A job object."""

    def __init__(self) -> None:
        self.limits: dict[str, Any] = {"BasicLimitInformation": {"LimitFlags": 0}}
        self.processes: list[Process] = []

    @property
    def ends_with_the_agent(self) -> bool:
        return bool(self.limits["BasicLimitInformation"]["LimitFlags"] & 0x2000)


def facts_of(pid: int | str) -> list[str]:
    """State, parent, group and what else the kernel tells of a process; a process that is gone counts as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z", "", ""]


def alive(pid: int) -> bool:
    return facts_of(pid)[0] != "Z"


def group_alive(pid: int) -> bool:
    processes = [facts_of(entry.name) for entry in Path("/proc").glob("[1-9]*")]
    return any(facts[0] != "Z" and facts[2] == str(pid) for facts in processes)


class ServiceFramework:
    """Reports states and dispatches controls as pywin32's class does."""

    statuses: list[tuple[int, int]] = []

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments

    def GetAcceptedControls(self) -> int:
        return 1

    def ReportServiceStatus(self, status: int, waitHint: int = 5000, **more: int) -> None:  # noqa: N803
        self.statuses.append((status, waitHint))

    def SvcRun(self) -> None:
        self.ReportServiceStatus(4)
        self.SvcDoRun()  # type: ignore[attr-defined]
        self.ReportServiceStatus(3)

    def ServiceCtrlHandlerEx(self, control: int, event_type: int, data: object) -> None:
        if control == 1:
            self.SvcStop()  # type: ignore[attr-defined]
        elif control == 4:
            self.SvcInterrogate()  # type: ignore[attr-defined]
        else:
            self.SvcOtherEx(control, event_type, data)  # type: ignore[attr-defined]


class Windows:
    """State of one machine, and the modules through which the agent reaches it."""

    def __init__(self) -> None:
        self.registry: dict[str, dict[str, str]] = {}
        self.permissions: dict[str, Permissions] = {}
        self.created: dict[str, str] = {}
        self.services: dict[str, dict[Any, Any]] = {}
        self.running: set[str] = set()
        self.processes: list[Process] = []
        self.jobs: list[Job] = []
        self.command_lines: list[str] = []
        self.events: list[tuple[int, str]] = []
        self.hosted: Any = None
        self.modules = {name: ModuleType(name) for name in MODULES}
        for name, values in CONSTANTS.items():
            self.modules[name].__dict__.update(values)
        self._put("pywintypes", error=WindowsError)
        self._add_registry_and_files()
        self._add_processes()
        self._add_services()

    def _put(self, module: str, **values: object) -> None:
        self.modules[module].__dict__.update(values)

    def allow(self, path: Path, owner: str = ADMINISTRATORS, *entries: Any) -> None:
        """Set the permissions of a file, in addition to the usual ones."""
        self.permissions[str(path)] = Permissions(owner, [*(Permissions().entries or ()), *entries])

    def _add_registry_and_files(self) -> None:
        def open_key(root: int, name: str, access: int, kind: None, options: int) -> tuple[str, int]:
            assert (root, options) == (-2147483646, 1)
            self.registry.setdefault(name, {})
            return name, 1

        def query(key: str, name: str) -> tuple[str, int]:
            if name not in self.registry[key]:
                raise WindowsError(2, "RegQueryValueEx", "The system cannot find the file specified.")
            return self.registry[key][name], 1

        def set_value(key: str, name: str, reserved: int, kind: int, value: str) -> None:
            self.registry[key][name] = value

        def create(path: str, attributes: Any) -> None:
            try:
                Path(path).mkdir()
            except OSError as error:
                raise WindowsError(183 if isinstance(error, FileExistsError) else 3, "Create", str(error)) from error
            self.created[path] = attributes.SECURITY_DESCRIPTOR

        def account(system: None, sid: str) -> tuple[str, str, int]:
            if sid not in NAMES:
                raise WindowsError(1332, "LookupAccountSid", "No mapping between account names and security IDs.")
            return NAMES[sid]

        self._put("win32api", RegCreateKeyEx=open_key, RegQueryValueEx=query, RegSetValueEx=set_value,
                  GetSystemDirectory=lambda: r"C:\Windows\system32")  # fmt: skip
        self._put("win32file", CreateDirectory=create)
        self._put(
            "win32security",
            GetNamedSecurityInfo=lambda path, kind, parts: self.permissions.get(path, Permissions()),
            ConvertSidToStringSid=str,
            LookupAccountSid=account,
            SECURITY_ATTRIBUTES=SimpleNamespace,
            ConvertStringSecurityDescriptorToSecurityDescriptor=lambda text, revision: text,
        )

    def _add_processes(self) -> None:
        def pipe(attributes: Any, size: int) -> tuple[Handle, Handle]:
            assert attributes.bInheritHandle is True
            reading, writing = os.pipe()
            return Handle(reading), Handle(writing)

        def create(
            app: None, line: str, process: None, thread: None, inherit: bool, flags: int,
            environment: dict[str, str], folder: str, start: Any,
        ) -> tuple[Process, Process, int, int]:  # fmt: skip
            assert inherit and flags & 4, "it must be suspended until it is in its job"
            self.command_lines.append(line)
            command = command_of(line)
            if not Path(command[-1]).exists():
                raise WindowsError(2, "CreateProcess", "The system cannot find the file specified.")
            made = Process(command, start, environment, folder)
            self.processes.append(made)
            return made, made, made.pid, 1

        def resume(process: Process) -> None:
            assert process.job is not None and process.job.ends_with_the_agent
            os.waitpid(process.pid, os.WUNTRACED)
            process.resumed = True
            _kill(process.pid, _SIGCONT)

        def wait(process: Any, milliseconds: int) -> int:
            if isinstance(process, Opened):
                return 258 if alive(process.pid) else 0
            try:
                process.popen.wait(milliseconds / 1000)
            except subprocess.TimeoutExpired:
                return 258
            return 0

        def assign(job: Job, process: Process) -> None:
            process.job = job
            job.processes.append(process)

        def job(attributes: None, name: str) -> Job:
            self.jobs.append(Job())
            return self.jobs[-1]

        def query(found: Job, kind: int) -> dict[str, Any]:
            return found.limits if kind == 9 else {"ActiveProcesses": sum(group_alive(p.pid) for p in found.processes)}

        def opened(access: int, inherit: bool, pid: int) -> Opened:
            if not alive(pid):
                raise WindowsError(87, "OpenProcess", "The parameter is incorrect.")
            return Opened(pid)

        def close(handle: Any) -> None:
            if isinstance(handle, Handle):
                os.close(handle.descriptor)

        def times(process: Any) -> dict[str, str]:
            return {"CreationTime": facts_of(process.pid)[19]}

        self._put("win32pipe", CreatePipe=pipe)
        self._put("msvcrt", open_osfhandle=lambda handle, mode: handle)
        self._put("win32event", WaitForSingleObject=wait)
        self._put("win32api", CloseHandle=close, OpenProcess=opened, SetHandleInformation=lambda *words: None)
        self._put(
            "win32process", CreateProcess=create, ResumeThread=resume, GetProcessTimes=times,
            GetExitCodeProcess=lambda process: process.popen.returncode % 2**32,
            TerminateProcess=lambda process, status: process.kill(),
        )  # fmt: skip
        self._put(
            "win32job", CreateJobObject=job, AssignProcessToJobObject=assign, QueryInformationJobObject=query,
            SetInformationJobObject=lambda found, kind, limits: found.limits.update(limits),
            TerminateJobObject=lambda found, status: [process.kill() for process in found.processes],
        )  # fmt: skip

    def _add_services(self) -> None:
        def create(manager: str, name: str, *about: Any) -> str:
            if name in self.services:
                raise WindowsError(1073, "CreateService", "The specified service already exists.")
            self.services[name] = {"about": about}
            return name

        def known(manager: str, name: str, access: int = 0) -> str:
            if name not in self.services:
                raise WindowsError(1060, "OpenService", "The specified service does not exist.")
            return name

        def stop(name: str) -> None:
            known("", name)
            if name not in self.running:
                raise WindowsError(1062, "ControlService", "The service has not been started.")
            self.running.remove(name)

        class Framework(ServiceFramework):
            statuses: list[tuple[int, int]] = []

        self.statuses = Framework.statuses
        self._put(
            "win32service", OpenSCManager=lambda *words: "manager", CloseServiceHandle=lambda handle: None,
            CreateService=create, OpenService=known,
            ChangeServiceConfig=lambda name, *about: self.services[name].update(line=about[3]),
            ChangeServiceConfig2=lambda name, kind, value: self.services[name].update({kind: value}),
        )  # fmt: skip
        self._put(
            "win32serviceutil", ServiceFramework=Framework, StopService=stop, RemoveService=self.services.pop,
            QueryServiceStatus=lambda name: (16, 1, 0, 0, 0, 0, 0),
        )  # fmt: skip
        self._put(
            "servicemanager", Initialize=lambda: None, StartServiceCtrlDispatcher=lambda: self.hosted,
            PrepareToHostSingle=lambda kind: setattr(self, "hosted", kind),
        )  # fmt: skip
        self._put(
            "win32evtlogutil", __file__="/pywin32/win32/lib/win32evtlogutil.py",
            AddSourceToRegistry=lambda *words: None,
            ReportEvent=lambda name, event, category, kind, texts: self.events.append((kind, texts[0])),
        )  # fmt: skip


def command_of(line: str) -> list[str]:
    """Return what Linux runs instead of this command line of Windows."""
    quoted = line.partition('cmd.exe /d /s /c ""')[2]
    if quoted:
        return ["/bin/sh", quoted.removesuffix('""')]
    script = line.partition("powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File ")[2]
    return ["/bin/sh", script.strip('"')] if script else [line.strip('"')]


def install(put: Callable[[str, ModuleType], None]) -> Windows:
    """Give the doubles to a process: `put` stores a module under its name."""
    windows = Windows()
    for name, module in windows.modules.items():
        put(name, module)
    return windows


def pretend() -> Windows:
    """Make this process one of Windows, as far as the agent can tell."""
    # Libraries choose by the platform when they are imported.
    import requests  # noqa: F401, PLC0415
    import urllib3  # noqa: F401, PLC0415

    found = install(sys.modules.__setitem__)
    sys.platform = "win32"
    return found
