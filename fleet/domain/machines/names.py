"""Names of machines: what one may be called, and what it is called while another has that name."""

import re

# Azure's own names hold letters, digits, and these three; the brackets are of classic cloud services.
_OTHER = re.compile(r"[^\w.()-]")


def machine_name(stated: str) -> str:
    """What a machine says it is called, as one word: Azure calls none otherwise, and no name words a sentence."""
    return _OTHER.sub("_", stated.strip())


def name_beside(name: str, machine_id: str) -> str:
    """How a machine is called while another one has its name. No machine can call itself so."""
    return f"{name[:150]}~{machine_id[:8]}"
