"""A machine's own key: made of the installation's master key, so that it is kept on the machine and nowhere else."""

import hmac
from datetime import datetime


def machine_key(master: bytes, vm_id: str, generation: int) -> bytes:
    """The key of this machine since that enrolment: 32 bytes."""
    return hmac.digest(master, f"drydock machine key 1\n{vm_id}\n{generation}".encode(), "sha256")


def key_name(master: bytes, vm_id: str, generation: int) -> str:
    """By what the database finds a machine with this key: it tells nothing of the key, and nobody can make it up."""
    return hmac.digest(master, f"drydock machine name 1\n{vm_id}\n{generation}".encode(), "sha256").hex()


def next_generation(last: int, now: datetime) -> int:
    """Higher than every one before, also than those that a database put back to an older state has forgotten."""
    return max(last + 1, int(now.timestamp() * 1000))


def mark_of(key: bytes, text: bytes) -> str:
    """The HMAC of a call, in hex."""
    return hmac.digest(key, text, "sha256").hex()
