"""What pictures of time are made of. Coordinates are in the picture's own units, `WIDTH` across."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

WIDTH = 960
LEFT = 132
BAR = 12


@dataclass(frozen=True, slots=True)
class Stay:
    """From when to when something was so, in a state's tone. `href` is where its bar leads.

    `of` is what it is a part of, `what` how that was. Stays with one `key` are parts of one thing and lie in one track.
    `began_before` says that it may have begun earlier, `end_unseen` that nobody saw how it ended, `maybe` that it may
    be so or not. `count` is above 1 where it stands for several.
    """

    begin: datetime
    end: datetime
    tone: str
    what: str
    href: str = ""
    key: str = ""
    began_before: bool = False
    end_unseen: bool = False
    maybe: bool = False
    count: int = 1
    of: str = ""

    @property
    def said(self) -> str:
        return f"{self.of}, {self.what}" if self.of else self.what


# The parts of one thing, by when they begin.
Item = list[Stay]


@dataclass(frozen=True, slots=True)
class Row:
    """What a lane is about. `href` is where its name leads; `hit` lanes stand out; `gaps` are hatched."""

    name: str
    stays: Sequence[Stay]
    href: str = ""
    hit: bool = False
    gaps: Sequence[Stay] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment that runs through all lanes."""

    label: str
    at: datetime
    tone: str


@dataclass(frozen=True, slots=True)
class Band:
    """A time that stands out through all lanes, such as one in which two things meet."""

    begin: datetime
    end: datetime
    what: str


@dataclass(frozen=True, slots=True)
class Bar:
    """`title` is what a screen reader and the pointer get. `outline` is the path of a bar with an edge that nobody saw;
    `count` is above 1 where the bar stands for several.
    """

    x: float
    y: int
    width: float
    title: str
    tone: str = ""
    href: str = ""
    outline: str = ""
    maybe: bool = False
    count: int = 1

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True, slots=True)
class Lane:
    row: Row
    y: int
    height: int
    bars: tuple[Bar, ...]
    gaps: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """`anchor` is `start` or `end`, so that its text stays inside the picture."""

    moment: Moment
    x: float
    y: int
    text_x: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`gaps` are times in which nobody listened, through all lanes; `bands` are drawn behind them."""

    top: int
    bottom: int
    lanes: tuple[Lane, ...]
    gaps: tuple[Bar, ...]
    bands: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    summary: str
    width: int = WIDTH
    left: int = LEFT
    bar: int = BAR

    @property
    def height(self) -> int:
        return self.bottom + 24

    @property
    def gap_height(self) -> int:
        return self.bottom - self.top


# Leads to the same picture of these times alone.
Zoom = Callable[[datetime, datetime], str]
