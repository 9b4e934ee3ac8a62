"""Event types that Microsoft documents. What each does to a machine stands in `fleet.wording.events`."""

TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
# Types after which a machine cannot report any more.
DELETING_TYPES = frozenset({"Preempt", "Terminate"})
# Types that lose something for good on an ordinary machine.
LOSING_TYPES = DELETING_TYPES | {"Redeploy"}
_BY_LETTERS = {name.casefold(): name for name in TYPES}


def canonical_type(text: str) -> str:
    """A documented type in Microsoft's letters, in whatever case it is written; any other type as it is."""
    return _BY_LETTERS.get(text.casefold(), text)
