"""Navigation: four areas of pages for all users, and one for administrators."""

from dataclasses import dataclass

from fleet.domain.people import Right, Rights


@dataclass(frozen=True, slots=True)
class Tab:
    """A page in the navigation. `address` is its URL name. `nouns` are the first words of the names of URLs that belong
    to it, such as `set` for `set` and `set-name`.
    """

    label: str
    address: str
    nouns: tuple[str, ...] = ()
    needs: Right = Right.READ

    def holds(self, name: str) -> bool:
        """Return whether the URL with this name is this page or belongs to it."""
        return name == self.address or any(name == noun or name.startswith(f"{noun}-") for noun in self.nouns)


@dataclass(frozen=True, slots=True)
class Area:
    """Pages that form one area of the navigation; the first is the default page."""

    label: str
    icon: str
    tabs: tuple[Tab, ...]

    def tabs_for(self, rights: Rights) -> tuple[Tab, ...]:
        return tuple(tab for tab in self.tabs if rights.may(tab.needs))


PLACES = (
    Area(
        "Now",
        "list-checks",
        (Tab("Queue", "queue", ("bulk",)), Tab("Waves", "waves", ("wave",)), Tab("Drills", "drills", ("drill",))),
    ),
    Area(
        "Fleet",
        "boxes",
        (
            Tab("Map", "fleet", ("fleet", "service")),
            Tab("Sets", "sets", ("set",)),
            Tab("Machines", "machines", ("machine", "machines-decommission")),
            Tab("Caches", "caches", ("cache", "maintenance")),
            Tab("Blind spots", "blind-spots"),
        ),
    ),
    Area(
        "History",
        "history",
        (
            Tab("Events", "events", ("event", "approval")),
            Tab("Timeline", "timeline"),
            Tab("Audit", "audit", ("audit",)),
            Tab("Reports", "reports", ("report",)),
            Tab("Handover", "handover", ("handover",)),
        ),
    ),
    Area(
        "Policy",
        "scale",
        (
            Tab("Rules and windows", "rules", ("rule", "window")),
            Tab("Notifications", "messages", ("message", "channel", "route", "delivery")),
            Tab("Stop all approvals", "stop", ("stop",)),
        ),
    ),
)

ADMIN = Area(
    "Admin",
    "wrench",
    (
        Tab("Users", "people", ("person",), Right.ADMINISTER),
        Tab("Single sign-on", "mapping", ("mapping",), Right.ADMINISTER),
        Tab("Join tokens", "join-tokens", ("join-token",), Right.ADMINISTER),
        Tab("Machines to admit", "admissions", ("admissions",)),
        Tab("Inventory", "inventory", ("inventory",), Right.ADMINISTER),
        Tab("Storage", "storage", (), Right.ADMINISTER),
        Tab("First steps", "first-steps", ("first-steps", "onboarding"), Right.ADMINISTER),
    ),
)


def place_of(name: str) -> tuple[Area, Tab] | tuple[None, None]:
    """Return the area and the tab of the URL with this name; None if it has none, such as a user's own page."""
    return next(((area, tab) for area in (*PLACES, ADMIN) for tab in area.tabs if tab.holds(name)), (None, None))
