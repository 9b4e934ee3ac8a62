"""Waves: several events of a service approved in turn."""

from enum import StrEnum


class WaveState(StrEnum):
    """`STOPPED`: something did not come back, or somebody stopped it; the rest of its approvals is withdrawn."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    STOPPED = "STOPPED"
