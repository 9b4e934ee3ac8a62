"""What a line of a channel's silences may say: this machine, and no other whose name begins alike."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ValidationError

from fleet.domain.reasons import Refused
from fleet.notifications.channels import KINDS
from fleet.notifications.incidents import LEASE, LONGEST, Muted, read_line, read_lines, still_silenced
from tests.factories import NOW, seconds

WEB = Muted(name=("web_1",), host=("web000001",), address=("10.0.0.4", "10.0.0.40"))


def test_a_line_names_services_and_labels() -> None:
    line = read_line(r'shop-*: job="node", instance=~"{address}(:\d+)?"')
    assert line.holds_for("shop-eu")
    assert line.holds_for("SHOP-eu")
    assert not line.holds_for("till")
    assert list(map(str, line.matchers([WEB]))) == [
        'instance=~"(?:10\\\\.0\\\\.0\\\\.4|10\\\\.0\\\\.0\\\\.40)(:\\\\d+)?"',
        'job="node"',
    ]


def test_names_are_escaped_and_anchored() -> None:
    odd = 'a.b*c|d(e)[f]\\g"h$'
    (matcher,) = read_line('*: host="{name}"').matchers([Muted(name=(odd,))])
    assert matcher.regex
    assert re.fullmatch(matcher.value, odd)
    assert not re.fullmatch(matcher.value, "axbbbc")
    assert not re.fullmatch(matcher.value, odd + "x")


def test_machine_without_such_a_name_gets_no_matcher() -> None:
    line = read_line('*: instance="{address}"')
    assert line.matchers([Muted(name=("vm1",))]) == ()
    assert line.matchers([Muted(name=("vm1",), address=("",))]) == ()
    assert line.matchers([]) == ()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('*: job="node"', "silence-no-place"),
        ('*: instance!~"{name}"', "silence-negative"),
        ('*: instance!="{name}"', "silence-negative"),
        ('*: instance=~"{name}|.*"', "silence-hits-others"),
        ('*: instance=~"{name}.*"', "silence-hits-others"),
        ('*: instance=~".*{name}"', "silence-hits-others"),
        ('*: instance=~"{address}[0-9]*"', "silence-hits-others"),
        ('*: instance=~"({name}"', "silence-no-expression"),
        ('*: a="{name}", b="{host}"', "silence-two-places"),
        ('*: a="{name}{host}"', "silence-two-places"),
        ('*: availability_set="{name}"', "silence-own-label"),
        ('*: event_id="{name}"', "silence-own-label"),
        ('instance="{name}"', "silence-unreadable"),
        (': instance="{name}"', "silence-unreadable"),
        ("*: instance={name}", "silence-unreadable"),
        ('*: instance="{name}",', "silence-unreadable"),
        ('*: instance="{name}" or job="x"', "silence-unreadable"),
        ('*: "instance"="{name}"', "silence-unreadable"),
        ("*: " + "x" * 600, "silence-unreadable"),
    ],
)
def test_line_that_hits_others_or_is_unreadable_is_refused(line: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        read_line(line)
    assert refused.value.reason.code == code


@pytest.mark.parametrize(
    "line", ['*: instance=~"{host}(\\..*)?"', '*: instance=~"{address}(:.*)?"', '*: addr="redis://{cache}:6380"']
)
def test_line_may_add_ports_and_domains(line: str) -> None:
    assert read_line(line).place in ("host", "address", "cache")


def test_line_may_add_a_fixed_negative_matcher() -> None:
    line = read_line('*: instance="{name}", severity!="page"')
    assert list(map(str, line.matchers([WEB]))) == ['instance=~"(?:web_1)"', 'severity!="page"']


def test_lines_are_bounded_and_empty_ones_do_not_count() -> None:
    assert read_lines(["", "  "]) == ()
    with pytest.raises(Refused):
        read_lines(['*: a="{name}"'] * 51)


def test_silence_is_bounded_by_lease_and_start() -> None:
    assert still_silenced(started_at=None, now=NOW) is None
    assert still_silenced(started_at=NOW, now=NOW) == NOW + LEASE
    assert still_silenced(started_at=NOW, now=NOW + LONGEST - seconds(60)) == NOW + LONGEST
    assert still_silenced(started_at=NOW, now=NOW + LONGEST) is None


def test_channel_with_a_bad_line_is_refused() -> None:
    silences = KINDS["alertmanager"].fields["silences"]
    assert silences.clean(['*: instance="{name}"'], None)
    with pytest.raises(ValidationError):
        silences.clean(['*: job="node"'], None)
