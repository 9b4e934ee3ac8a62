"""What a machine's instance metadata states, across answers that may be partial.

`/metadata/instance` is reported to leave keys out, or values empty, unless `extended=true` is given (and agents before
0.2.0 did not give it). So a missing key says nothing, and an empty value says something only in a complete answer.
"""

from collections.abc import Mapping
from typing import Any

# The keys that are kept when an answer lacks them: documented ones, so that no machine makes its row grow without end.
TEXTS = (
    "azEnvironment", "evictionPolicy", "location", "name", "offer", "osType", "placementGroupId", "priority",
    "publisher", "resourceGroupName", "resourceId", "sku", "subscriptionId", "tags", "version", "vmId",
    "vmScaleSetName", "vmSize", "zone",
)  # fmt: skip
DOMAINS = ("platformFaultDomain", "platformUpdateDomain")
LISTS = ("privateIpAddresses", "tagsList")
KEPT = (*TEXTS, *DOMAINS, *LISTS, "osProfile")
# Azure allows so many tags on a VM.
MOST_TAGS = 50


def merged(known: Mapping[str, Any], stated: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
    """Return the metadata of a machine of which `known` was known, now that `stated` was read.

    A value of a form that Azure does not use counts as not stated, in a complete answer as well.
    """
    found = dict(stated)
    for key in KEPT:
        if key not in known:
            continue
        if key not in stated or not _is_readable(key, stated[key]) or (not complete and _is_empty(stated[key])):
            found[key] = known[key]
    if not complete and isinstance(known.get("tagsList"), list):
        found["tagsList"] = _tags(known["tagsList"], found["tagsList"])
    return found


def _is_readable(key: str, value: Any) -> bool:
    if key in DOMAINS:
        text = value.strip() if isinstance(value, str) else None
        return text is not None and (not text or (text.isascii() and text.isdigit() and len(text) < 6))
    if key in TEXTS:
        return isinstance(value, str)
    return isinstance(value, list if key in LISTS else dict)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _tags(known: list[Any], stated: list[Any]) -> list[Any]:
    """The tags that are stated, and after them those that were known: a partial answer may list some only."""
    names = {_name(tag) for tag in stated}
    return [*stated, *(tag for tag in known if _name(tag) not in names)][: max(len(stated), MOST_TAGS)]


def _name(tag: Any) -> str:
    name = tag.get("name") if isinstance(tag, dict) else None
    return name.lower() if isinstance(name, str) else ""
