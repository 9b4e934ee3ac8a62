"""Identities of the simulated agents of `held`: each value is computed from the agent's number."""

from __future__ import annotations

from hashlib import sha256


def credential(number: int) -> str:
    """Return a credential of realistic length."""
    return f"drydock_agent_{number:08d}_{sha256(str(number).encode()).hexdigest()[:43]}"


def spool(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def document(number: int) -> str:
    """The hash of its newest document: those of a set of twenty have one."""
    return sha256(str(number // 20).encode()).hexdigest()
