"""The cost of one machine for the others: it sends as much as it may, while the answers to another are measured.

Each attack is played against one gateway process and against two. Each play gives two figures of everything: before the
attack (the control), and during it. FAIRNESS_ATTACKS names some of the attacks, by the first words of their names, with
semicolons between; FAIRNESS_PROCESSES=1 plays with one process only.
"""

from __future__ import annotations

import os
from uuid import uuid4

from drydock_agent import wire

from bench.fairness_play import Attack, Base, Play, Report, document, event
from bench.messages import receiver
from bench.stage import Stage
from bench.table import Line, at_most

PROCESSES = tuple(int(one) for one in os.environ.get("FAIRNESS_PROCESSES", "1,2").split(","))
CHOSEN = tuple(one for one in os.environ.get("FAIRNESS_ATTACKS", "").split(";") if one)


def _documents(count: int, events: int) -> list[Report]:
    return [document([event() for _ in range(events)]) for _ in range(count)]


def _set_names() -> list[Report]:
    return [
        (wire.INSTANCE, {"compute": {}, "resource_name": "x", "availability_set": f"availability_set:n-{uuid4()}"})
        for _ in range(wire.MAX_REPORTS)
    ]


def _caches() -> list[Report]:
    def host() -> str:
        return f"{uuid4()}.redis.example.net"

    return [(wire.COVERAGE, {"cache": host(), "state": "subscribed"}) for _ in range(wire.MAX_REPORTS)]


ATTACKS = (
    Attack("2,000 events a document", lambda _: _documents(1, 2_000)),
    Attack("10,000 events a document", lambda _: _documents(1, 10_000)),
    Attack("200 set names", lambda _: _set_names()),
    Attack("20 documents of 500 events", lambda _: _documents(20, 500)),
    Attack("3,000 cache names", lambda _: _caches(), burst=15),
    Attack("6,000 events first", lambda _: _documents(1, 2_000), burst=3),
)


def measure(stage: Stage) -> list[Line]:
    attacks = [one for one in ATTACKS if not CHOSEN or one.name.startswith(CHOSEN)]
    lines: list[Line] = []
    with receiver() as (url, heard):
        base = Base(stage, url, len(attacks))
        plays = [(processes, number) for processes in PROCESSES for number in range(len(attacks))]
        for play_number, (processes, number) in enumerate(plays):
            with base.play(play_number + 1, processes) as (_, ports):
                play = Play(base, ports, heard, f"attacker{number}")
                play.run(attacks[number])
            lines += _lines(attacks[number], processes, play)
            for line in lines[-5:]:
                print(f"{line.what:<72} {line.figure:<48} {line.note}", flush=True)
    return lines


def _lines(attack: Attack, processes: int, play: Play) -> list[Line]:
    where = f"{processes} process{'es' if processes > 1 else ''}, {attack.name}"
    # The stated aim of an answer is a multiple of its control, and an upper bound; that of the rest a bound.
    answered = ("report", 2.0, 0.5), ("receipt", None, 0.5), ("visible", None, 1.0), ("notified", None, 5.0)
    made = []
    for name, times, bound in answered:
        before, now = getattr(play.control, name), getattr(play.attacked, name)
        said = f"control {_said(before)}; under attack {_said(now)}"
        # With a multiple: whichever is nearer, as a share of what it may be.
        most = max(before.p50 * times, 0.05) if times else bound
        share = max(now.p50 / min(most, bound), now.worst / bound)
        key = f"fairness-{processes}-{attack.name.replace(' ', '-').replace(',', '')}-{name}"
        made.append(Line(f"{where}: {name}", said, _bad(now.bad), key=key, ratio=share, aim=at_most(1)))
    sent = play.attacked.attacks
    made.append(Line(f"{where}: deliveries of the attacker", f"{len(sent.taken)}, {_said(sent)}", _bad(sent.bad)))
    return made


def _said(times: object) -> str:
    return f"p50 {times.p50:.2f} s, worst {times.worst:.2f} s"  # type: ignore[attr-defined]


def _bad(bad: dict[int, int]) -> str:
    return f"other answers {bad}" if bad else ""
