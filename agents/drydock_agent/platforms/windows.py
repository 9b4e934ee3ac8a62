"""Windows: clocks, folders, permissions, and the service control manager."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ntsecuritycon
import pywintypes
import win32api
import win32con
import win32file
import win32security
import winnt

# A wait without end cannot be interrupted by Ctrl-C.
WATCH_SECONDS = 0.5
# The command `service` manages a service.
HAS_SERVICE = True
# What the discovery of the metadata service needs, and why it may fail.
DISCOVERY_NEEDS = "UDP port 68"
DISCOVERY_REFUSED = "which the DHCP client of Windows keeps for itself"

# Only these may own or change a hook: SYSTEM, Administrators and TrustedInstaller.
TRUSTED = {
    "S-1-5-18",
    "S-1-5-32-544",
    "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
}
# Permissions of the owner, who is checked separately.
_OWNER_RIGHTS = "S-1-3-4"
# Full control for SYSTEM, Administrators and the owner, inherited by everything inside; nothing of the folder above.
PRIVATE = "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;OW)"
_WRITE = (
    ntsecuritycon.FILE_WRITE_DATA
    | ntsecuritycon.FILE_APPEND_DATA
    | ntsecuritycon.FILE_WRITE_EA
    | ntsecuritycon.FILE_DELETE_CHILD
    | ntsecuritycon.FILE_WRITE_ATTRIBUTES
    | ntsecuritycon.DELETE
    | ntsecuritycon.WRITE_DAC
    | ntsecuritycon.WRITE_OWNER
    | ntsecuritycon.MAXIMUM_ALLOWED
    | ntsecuritycon.GENERIC_ALL
    | ntsecuritycon.GENERIC_WRITE
)
_BOOT_KEY = r"SOFTWARE\Drydock\Boot"


@cache
def boot_id() -> str:
    """Return an id that changes with each boot: a value under a registry key that Windows forgets at shutdown. Return
    an empty string if this process may not create the key.
    """
    try:
        key, _ = win32api.RegCreateKeyEx(
            win32con.HKEY_LOCAL_MACHINE,  # type: ignore[arg-type]
            _BOOT_KEY,
            win32con.KEY_READ | win32con.KEY_WRITE,
            None,
            winnt.REG_OPTION_VOLATILE,
        )
        with contextlib.suppress(pywintypes.error):
            return str(win32api.RegQueryValueEx(key, "Id")[0])
        made = str(uuid.uuid4())
        win32api.RegSetValueEx(key, "Id", 0, win32con.REG_SZ, made)
    except pywintypes.error:
        return ""
    return made


def since_boot() -> float:
    """Return the seconds since boot."""
    return time.monotonic()


def data_dir(environ: Mapping[str, str]) -> str:
    """Return the folder of settings, state, hooks and log."""
    return environ.get("PROGRAMDATA", r"C:\ProgramData") + r"\Drydock"


def settings_file(environ: Mapping[str, str]) -> str:
    """Return the settings file to use without `DRYDOCK_CONFIG`, or an empty string if there is none."""
    path = data_dir(environ) + r"\agent.toml"
    return path if Path(path).is_file() else ""


def state_dir(environ: Mapping[str, str]) -> str:
    """Return the default state folder."""
    return data_dir(environ) + r"\Agent"


def hooks_dir(environ: Mapping[str, str]) -> str:
    """Return the default hooks folder."""
    return data_dir(environ) + r"\Hooks"


def make_private_folder(path: Path) -> None:
    """Create a folder that only SYSTEM, administrators and its owner can use, if it does not exist."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    attributes = win32security.SECURITY_ATTRIBUTES()
    attributes.SECURITY_DESCRIPTOR = win32security.ConvertStringSecurityDescriptorToSecurityDescriptor(
        PRIVATE, win32security.SDDL_REVISION_1
    )
    try:
        win32file.CreateDirectory(str(path), attributes)
    except pywintypes.error as error:
        if not path.is_dir():
            raise OSError(error.winerror, error.strerror, str(path)) from error


def is_program(path: Path) -> bool:
    """Return whether this file can be run as a hook."""
    return path.suffix.lower() in (".ps1", ".cmd", ".bat", ".exe")


def hook_command(path: Path) -> list[str]:
    """Return the command line that runs this hook. Interpreters are named by their path, so that no other program of
    the same name is run.
    """
    system, suffix = win32api.GetSystemDirectory(), path.suffix.lower()
    if suffix == ".ps1":
        program = system + r"\WindowsPowerShell\v1.0\powershell.exe"
        return [program, "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", str(path)]
    return [str(path)] if suffix == ".exe" else [system + r"\cmd.exe", "/d", "/s", "/c", str(path)]


def unsafe_reason(path: Path) -> str:
    """Return the reason why users other than SYSTEM, administrators and TrustedInstaller could change this file, or
    an empty string. A link is as safe as the file that it names.
    """
    path.stat()
    try:
        return next(filter(None, map(_reason, {path, path.resolve()})), "")
    except (pywintypes.error, NotImplementedError) as error:
        return f"has permissions that cannot be read ({getattr(error, 'strerror', error)})"


def _reason(path: Path) -> str:
    parts = win32security.OWNER_SECURITY_INFORMATION | win32security.DACL_SECURITY_INFORMATION
    found = win32security.GetNamedSecurityInfo(str(path), win32security.SE_FILE_OBJECT, parts)
    owner = found.GetSecurityDescriptorOwner()
    # None allows everything.
    acl: Any = found.GetSecurityDescriptorDacl()
    if _text(owner) not in TRUSTED:
        return f"belongs to {_account(owner)}, not to SYSTEM, Administrators or TrustedInstaller"
    if acl is None:
        return "can be written by everybody"
    for number in range(acl.GetAceCount()):
        (kind, flags), mask, *rest = acl.GetAce(number)
        if kind not in (win32security.ACCESS_ALLOWED_ACE_TYPE, win32security.ACCESS_ALLOWED_OBJECT_ACE_TYPE):
            # It denies something. `GetAce` raises NotImplementedError for the other kinds that allow something.
            continue
        if mask & _WRITE and not flags & ntsecuritycon.INHERIT_ONLY_ACE:
            sid = rest[-1]
            if _text(sid) not in TRUSTED | {_OWNER_RIGHTS}:
                return f"can be written by {_account(sid)}"
    return ""


def _text(sid: Any) -> str:
    return str(win32security.ConvertSidToStringSid(sid))


def _account(sid: Any) -> str:
    """Return the name of an account, or its id if it has none."""
    try:
        name, domain, _ = win32security.LookupAccountSid(None, sid)
    except pywintypes.error:
        return _text(sid)
    return f"{domain}\\{name}" if domain else str(name)


class _Heartbeat:
    """Time of the last message to the service manager, which the service's watchdog reads."""

    def __init__(self) -> None:
        self.at = time.monotonic()

    def age(self) -> float:
        return time.monotonic() - self.at


heartbeat = _Heartbeat()


def notify(state: str) -> None:
    """Record that the agent is alive."""
    heartbeat.at = time.monotonic()


def network_interface() -> str:
    """Return an empty string: a socket cannot be bound to an interface by name."""
    return ""


def mac_address(interface: str) -> bytes:
    """Return the hardware address of a network interface."""
    return uuid.getnode().to_bytes(6, "big")
