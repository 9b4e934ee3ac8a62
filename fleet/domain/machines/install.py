"""What installs the agent on a machine: one line for each platform, ready to be copied. Pure."""

import re
import shlex
from dataclasses import dataclass

# The unit of docs/agent.md. systemd reads the settings as root, so that nobody else has to.
UNIT = """\
[Unit]
Description=Drydock agent
Wants=network-online.target
After=network-online.target

[Service]
EnvironmentFile=/etc/drydock-agent.env
ExecStart=/opt/drydock-agent/bin/drydock-agent run
DynamicUser=yes
StateDirectory=drydock-agent
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
SETTINGS_FILE = "/etc/drydock-agent.env"
UNIT_FILE = "/etc/systemd/system/drydock-agent.service"
WINDOWS_HOME = r"C:\Program Files\Drydock Agent"
WINDOWS_FOLDER = r"C:\ProgramData\Drydock"


@dataclass(frozen=True, slots=True)
class InstallLine:
    """What is run on, or given to, machines of a `platform`: `linux`, `windows`, `cloud-init`, `azure-cli`, `other`."""

    platform: str
    text: str


def install_lines(*, fleet_url: str, join_token: str, package: str) -> tuple[InstallLine, ...]:
    """For each platform what makes a new machine enrol with this join token. `package` is what pip is given."""
    steps = _linux_steps(fleet_url, join_token, package)
    return (
        InstallLine("linux", f"sudo sh -c {shlex.quote(steps)}"),
        InstallLine("windows", _windows(fleet_url, join_token, package)),
        InstallLine("cloud-init", f"#!/bin/sh\n{steps}"),
        InstallLine(
            "azure-cli",
            "az vm run-command invoke --resource-group GROUP --name VM --command-id RunShellScript"
            f" --scripts {shlex.quote(steps)}",
        ),
        InstallLine("other", "\n".join(_settings(fleet_url, join_token))),
    )


def _settings(fleet_url: str, join_token: str) -> list[str]:
    return [f"DRYDOCK_FLEET_URL={fleet_url}", f"DRYDOCK_JOIN_TOKEN={join_token}"]


def _linux_steps(fleet_url: str, join_token: str, package: str) -> str:
    """As root, in any POSIX shell; a second run changes nothing but the settings."""
    return " && ".join(
        [
            "python3 -m venv /opt/drydock-agent",
            f'/opt/drydock-agent/bin/pip install --quiet "{_plain(package)}"',
            f"(umask 077 && {_written(_settings(fleet_url, join_token), SETTINGS_FILE)})",
            _written(UNIT.splitlines(), UNIT_FILE),
            "systemctl daemon-reload",
            "systemctl enable --now drydock-agent",
        ]
    )


def _written(lines: list[str], path: str) -> str:
    """Between double quotes, so that it can stand between single ones: quoted for printf, then for the shell."""
    formats = [line.replace("\\", "\\\\").replace("%", "%%") for line in lines]
    shown = "".join(_plain(line) + r"\n" for line in formats)
    return f'printf "{shown}" > {path}'


def _plain(text: str) -> str:
    """What stands between double quotes as it is."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _windows(fleet_url: str, join_token: str, package: str) -> str:
    """For PowerShell as administrator: a task that starts with the machine, and settings that administrators alone may
    read.
    """
    scripts, settings = rf"{WINDOWS_HOME}\Scripts", rf"{WINDOWS_FOLDER}\agent.toml"
    run = rf'/c set "DRYDOCK_CONFIG={settings}" && "{scripts}\drydock-agent.exe" run'
    lines = [f'fleet_url = "{fleet_url}"', f'join_token = "{join_token}"']
    return "; ".join(
        [
            "$ErrorActionPreference = 'Stop'",
            f"py -3 -m venv '{WINDOWS_HOME}'",
            rf"& '{scripts}\pip.exe' install --quiet {_ps(package)}",
            f"New-Item -ItemType Directory -Force '{WINDOWS_FOLDER}' | Out-Null",
            # The system and administrators, by their well-known ids: names are translated.
            f"icacls '{WINDOWS_FOLDER}' /inheritance:r"
            " /grant '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F' | Out-Null",
            f"Set-Content -Encoding ascii '{settings}' {', '.join(_ps(line) for line in lines)}",
            "Register-ScheduledTask -Force -TaskName 'Drydock agent' -User SYSTEM"
            " -Trigger (New-ScheduledTaskTrigger -AtStartup)"
            f" -Action (New-ScheduledTaskAction -Execute cmd.exe -Argument {_ps(run)})"
            " -Settings (New-ScheduledTaskSettingsSet -ExecutionTimeLimit 0 -RestartCount 999"
            " -RestartInterval (New-TimeSpan -Minutes 1)) | Out-Null",
            "Start-ScheduledTask 'Drydock agent'",
        ]
    )


def _ps(text: str) -> str:
    """A string of PowerShell in which nothing is special."""
    return "'" + text.replace("'", "''") + "'"
