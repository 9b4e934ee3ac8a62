"""Hooks as processes of Windows, each in a job object that ends them together with all that they started."""

from __future__ import annotations

import contextlib
import json
import msvcrt
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pywintypes
import win32api
import win32con
import win32event
import win32job
import win32pipe
import win32process
import win32security

_FLAGS = (
    # Suspended, so that the hook is in its job before it can start a program.
    win32process.CREATE_SUSPENDED
    | win32process.CREATE_NO_WINDOW
    | win32process.CREATE_NEW_PROCESS_GROUP
    | win32process.CREATE_UNICODE_ENVIRONMENT
)
# One hook at a time is created: another one would inherit its pipes and keep them open.
_creating = threading.Lock()
# Jobs of ended hooks in which a program still runs. Windows ends it when the last handle of the job is closed.
_jobs_in_use: list[Any] = []


class Child:
    """A running hook, with the interface of `posix_processes.Child`."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], record: Path | None) -> None:
        self.returncode: int | None = None
        self._record = record
        try:
            self._job = _new_job()
            with _creating:
                self._start(command, environment)
        except pywintypes.error as error:
            raise OSError(error.winerror, error.strerror) from error

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        their_input, our_input = _pipe(child_reads=True)
        their_output, our_output = _pipe(child_reads=False)
        start = win32process.STARTUPINFO()
        start.dwFlags = win32process.STARTF_USESTDHANDLES
        start.hStdInput, start.hStdOutput, start.hStdError = their_input, their_output, their_output
        self.stdin, self.stdout = os.fdopen(our_input, "wb"), os.fdopen(our_output, "rb")
        try:
            self._process, thread, self.pid, _ = win32process.CreateProcess(
                None,
                _command_line(command),
                None,
                None,
                True,
                _FLAGS,
                dict(environment),
                str(Path(command[-1]).parent),
                start,
            )
        except pywintypes.error:
            self.stdin.close()
            self.stdout.close()
            raise
        finally:
            win32api.CloseHandle(their_input)
            win32api.CloseHandle(their_output)
        try:
            win32job.AssignProcessToJobObject(self._job, self._process)
            if self._record is not None:
                # A full disk must not keep a hook from running.
                with contextlib.suppress(OSError):
                    self._record.write_text(json.dumps([self.pid, _created(self._process)]), "utf-8")
        except pywintypes.error:
            win32process.TerminateProcess(self._process, 1)
            raise
        win32process.ResumeThread(thread)
        win32api.CloseHandle(thread)

    def poll(self) -> int | None:
        """Return the exit status, or None while the hook runs."""
        return self._ended(0)

    def end(self, grace: float) -> None:
        """End the hook and all that it started, at once: a service has no console through which it could ask."""
        with contextlib.suppress(pywintypes.error):
            win32job.TerminateJobObject(self._job, 1)
        self._ended(grace)

    def release(self) -> None:
        """Forget the record of the hook, and close its job unless a program that it started still runs."""
        if self._record is not None:
            with contextlib.suppress(OSError):
                self._record.unlink()
        _jobs_in_use[:] = [job for job in (*_jobs_in_use, self._job) if _has_processes(job)]

    def _ended(self, seconds: float) -> int | None:
        waited = win32event.WaitForSingleObject(self._process, int(seconds * 1000))
        if self.returncode is None and waited == win32event.WAIT_OBJECT_0:
            status = win32process.GetExitCodeProcess(self._process)
            # Windows has 32 bits without a sign; errors of the system read better as negative numbers.
            self.returncode = (status + 2**31) % 2**32 - 2**31
        return self.returncode


def _new_job() -> Any:
    # Its type stub names no result.
    job: Any = win32job.CreateJobObject(None, "")  # type: ignore[func-returns-value]
    limits = win32job.QueryInformationJobObject(job, win32job.JobObjectExtendedLimitInformation)
    limits["BasicLimitInformation"]["LimitFlags"] |= win32job.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    win32job.SetInformationJobObject(job, win32job.JobObjectExtendedLimitInformation, limits)
    return job


def _has_processes(job: Any) -> bool:
    found = win32job.QueryInformationJobObject(job, win32job.JobObjectBasicAccountingInformation)
    return bool(found["ActiveProcesses"])


def _pipe(*, child_reads: bool) -> tuple[Any, int]:
    """Create a pipe. Return the end of the child, which it inherits, and ours as a file descriptor."""
    attributes = win32security.SECURITY_ATTRIBUTES()
    attributes.bInheritHandle = True
    reading, writing = win32pipe.CreatePipe(attributes, 0)
    theirs, ours = (reading, writing) if child_reads else (writing, reading)
    win32api.SetHandleInformation(ours, win32con.HANDLE_FLAG_INHERIT, 0)
    mode = os.O_WRONLY if child_reads else os.O_RDONLY
    return theirs, msvcrt.open_osfhandle(ours.Detach(), mode)  # type: ignore[attr-defined,unused-ignore]


def _command_line(command: Sequence[str]) -> str:
    *programs, path = command
    if not programs or not programs[0].lower().endswith("cmd.exe"):
        return subprocess.list2cmdline(command)
    # With /s, cmd.exe removes the outer quotes and takes the rest as it is, also with spaces and `&` in it.
    return f'{subprocess.list2cmdline(programs)} ""{path}""'


def _created(process: Any) -> str:
    return str(win32process.GetProcessTimes(process)["CreationTime"])


def end_leftovers(run: str, record: Path) -> int:
    """End the hook that an earlier agent left, with all that it started. The record in the state folder has its process
    id and the time of its creation, because Windows uses an id again.

    Return the number of ended processes. Usually it is 0, because the job object ended them with the agent.
    """
    try:
        pid, created = json.loads(record.read_text("utf-8"))
        record.unlink()
    except (OSError, ValueError):
        return 0
    access = win32con.PROCESS_TERMINATE | win32con.PROCESS_QUERY_LIMITED_INFORMATION | win32con.SYNCHRONIZE
    try:
        # While this handle is open, the id belongs to this process.
        process = win32api.OpenProcess(access, False, pid)
        running = win32event.WaitForSingleObject(process, 0) != win32event.WAIT_OBJECT_0
        if not running or _created(process) != created:
            return 0
        taskkill = win32api.GetSystemDirectory() + r"\taskkill.exe"
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([taskkill, "/T", "/F", "/PID", str(pid)], capture_output=True, timeout=10, check=False)
        if win32event.WaitForSingleObject(process, 0) != win32event.WAIT_OBJECT_0:
            win32process.TerminateProcess(process, 1)
    except pywintypes.error:
        # No such process, or it has ended meanwhile.
        return 0
    return 1


def decode(output: bytes) -> str:
    """Return the output of a hook as text. Programs of Windows write UTF-8 or the code page of the console."""
    # The end of long output may begin inside a character.
    inside = next((number for number, byte in enumerate(output[:3]) if byte & 0xC0 != 0x80), 0)
    try:
        return output[inside:].decode("utf-8")
    except ValueError:
        try:
            return output.decode("oem", "replace")
        except LookupError:
            return output.decode("utf-8", "replace")
