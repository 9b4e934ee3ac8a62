"""Whose credential something is."""

from __future__ import annotations

from fleet.domain.secrets import hash_of
from fleet.projections.machines import MachineIdentity, identities_of


def identity_of(*, credential: str) -> MachineIdentity | None:
    return identities_of(hashes=[hash_of(credential)]).get(hash_of(credential))
