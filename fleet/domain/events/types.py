"""Event types that Microsoft documents. What each does to a machine stands in `fleet.wording.events`."""

# Advice: Azure starts nothing, and acknowledging it has no effect. Preview, since api-version 2024-07-09.
ADVICE_TYPES = ("SpotRebalanceRecommendation",)
TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
# Types after which a machine cannot report any more.
DELETING_TYPES = frozenset({"Preempt", "Terminate"})
# Types that lose something for good on an ordinary machine.
LOSING_TYPES = DELETING_TYPES | {"Redeploy"}
_BY_LETTERS = {name.casefold(): name for name in TYPES}


def canonical_type(text: str) -> str:
    """A documented type in Microsoft's letters, in whatever case it is written; any other type as it is."""
    return _BY_LETTERS.get(text.casefold(), text)


_ADVICE = frozenset(name.casefold() for name in ADVICE_TYPES)
_KNOWN = frozenset(name.casefold() for name in TYPES)


def is_advice(event_type: str) -> bool:
    """Whether an event of this type, in any case of letters, has nothing to approve."""
    return event_type.strip().casefold() in _ADVICE


def is_unknown(event_type: str) -> bool:
    """Whether Microsoft documents no effect of this type. Not stated at all is unknown as well."""
    return event_type.strip().casefold() not in _ADVICE | _KNOWN
