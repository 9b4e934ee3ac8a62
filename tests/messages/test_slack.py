"""Slack, played by a stand-in that refuses what the real one refuses: what people see in the channel."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.notifications.channels import slack
from fleet.notifications.formats import for_slack
from fleet.notifications.models import Reference
from fleet.notifications.payloads import MessageWords
from fleet.notifications.routing import NotificationType
from fleet.notifications.sender.pool import Pool
from fleet.operations.approvals import claims
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.posts import Teller, channel_of, ids
from tests.messages.pretend import Said, listening
from tests.messages.pretend_slack import TOKEN, PretendSlack, faults, no

pytestmark = pytest.mark.django_db


@pytest.fixture
def there() -> Iterator[PretendSlack]:
    service = PretendSlack()
    with listening(service):
        yield service


@pytest.fixture
def fleet(db: None) -> Fleet:
    return Fleet()


@pytest.fixture
def teller(fleet: Fleet, there: PretendSlack, loopback_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Teller:
    monkeypatch.setattr(slack, "URL", f"{there.url}/api")
    monkeypatch.setattr(slack, "send_job", loopback_pool.send)
    values = {"token": TOKEN, "channel": "#shop-ops", "signing_secret": "s" * 32}
    return Teller(slack, fleet, channel_of("slack", fleet.now, **values), values)


def wave(fleet: Fleet, count: int) -> list[str]:
    """So many events at once, each of one machine of a set of its own."""
    found = ids(count)
    for number, event_id in enumerate(found):
        fleet.enrol(f"w{number}", availability_set=f"standalone:w{number}")
        due = fleet.now + timedelta(minutes=15, seconds=number)
        fleet.say(
            f"w{number}", factories.listing(event_id, event_type="Reboot", resources=(f"w{number}",), not_before=due)
        )
    return found


def claim(fleet: Fleet, event_id: str = EVENT) -> None:
    claims.claim(event_id=event_id, actor=factories.acting(factories.operator()), now=fleet.now)


def test_an_event_is_one_card_that_is_edited_and_keeps_what_happened_in_its_thread(
    fleet: Fleet, teller: Teller, there: PretendSlack
) -> None:
    factories.announced(fleet)
    outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT), lines=["4 of 6 stay up."])
    assert (outcome.ok, outcome.wait_seconds) == (True, 1.0)
    (card,) = there.cards
    assert "Freeze of vm1, vm2" in card.seen and "4 of 6 stay up." in card.seen
    assert card.text == "Freeze of vm1, vm2"
    assert list(card.buttons.values()) == [f"https://drydock.example/events/{EVENT}/", EVENT]
    fleet.later(5)
    claim(fleet)
    teller.tell((NotificationType.CLAIMED, EVENT), title="otto is on it")
    assert (len(there.cards), card.edits, card.thread, card.broadcast) == (1, 1, ["otto is on it"], [])
    assert "otto is on it" in card.seen
    # Whoever takes it over does so on the page.
    assert EVENT not in card.buttons.values()
    fleet.later(60)
    fleet.all_say()
    teller.tell((NotificationType.ENDED, EVENT), title="Ended")
    assert (len(there.cards), card.edits, card.thread) == (1, 2, ["otto is on it", "Ended"])
    assert there.wrong == []


def test_what_has_to_be_heard_is_said_in_the_channel_too(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    """An edit notifies nobody."""
    factories.announced(fleet)
    teller.tell((NotificationType.FIRST_SEEN, EVENT))
    for moment in (
        NotificationType.CHANGED,
        NotificationType.UNDECIDED,
        NotificationType.OVERDUE,
        NotificationType.STARTED,
    ):
        teller.tell((moment, EVENT), title=moment.value)
    assert there.cards[0].broadcast == ["event.changed", "event.undecided", "approval.overdue"]


def test_a_name_with_markup_mentions_nobody_and_is_no_link(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    evil = "<!channel> & <@U1> <https://evil.example|log in> *bold* https://evil.example"
    teller.tell((NotificationType.FIRST_SEEN, EVENT), title=evil, lines=[evil])
    teller.tell((NotificationType.CHANGED, EVENT), title=evil, lines=[evil])
    (card,) = there.cards
    assert evil in card.seen
    for _, arguments in there.calls:
        assert "<" not in json.dumps(arguments)
        # In blocks everything is plain text; beside them nothing is marked up or unfolded.
        assert all(block["text"]["type"] == "plain_text" for block in arguments.get("blocks", ()) if "text" in block)
    thread = there.calls[-1][1]
    assert (thread["mrkdwn"], thread["unfurl_links"]) == (False, False)


def test_texts_of_any_length_stay_within_the_limits(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    for text in ("&" * 9000, "\N{PILE OF POO}" * 9000, "\x00" * 50, "", "a\u202eb" * 5000):
        assert teller.tell((NotificationType.FIRST_SEEN, EVENT), title=text or " ", lines=[text] * 300).ok
        assert teller.tell((NotificationType.CHANGED, EVENT), title=text or " ", lines=[text] * 300).ok
        assert there.wrong == []


def test_an_entity_is_never_cut() -> None:
    for most in range(2, 60):
        text = for_slack("a&<b>" * 20, most)
        assert len(text) <= most
        assert not list(faults({"text": text}))


def test_a_card_that_somebody_deleted_is_posted_anew(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    teller.tell((NotificationType.FIRST_SEEN, EVENT))
    there.cards.clear()
    assert teller.tell((NotificationType.CHANGED, EVENT)).ok
    assert teller.tell((NotificationType.STARTED, EVENT)).ok
    (card,) = there.cards
    assert (card.edits, len(card.thread)) == (1, 1)


def test_blocks_that_slack_does_not_take_are_left_out(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    there.instead = [no("invalid_blocks")]
    assert teller.tell((NotificationType.FIRST_SEEN, EVENT)).ok
    assert [(card.text, card.blocks) for card in there.cards] == [("Freeze of vm1, vm2", [])]


def test_what_is_wrong_with_the_channel_is_said_in_slacks_own_word_and_tried_again(
    fleet: Fleet, teller: Teller, there: PretendSlack
) -> None:
    factories.announced(fleet)
    for code in (
        "channel_not_found", "not_in_channel", "invalid_auth", "token_revoked", "is_archived", "internal_error",
    ):  # fmt: skip
        there.instead = [no(code)]
        outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT))
        assert (outcome.ok, outcome.again, outcome.gone, outcome.answer) == (False, True, False, code)
    assert teller.tell((NotificationType.FIRST_SEEN, EVENT)).ok


def test_a_post_that_slack_will_never_take_is_given_up(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    there.instead = [no("msg_too_long"), no("msg_too_long")]
    outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.ok, outcome.again, outcome.answer) == (False, False, "msg_too_long")


def test_slack_says_when_to_come_again(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    there.allowed = 0
    outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.again, outcome.wait_seconds, outcome.answer) == (True, 7.0, "ratelimited")
    there.instead = [Said(200, b'{"ok": false, "error": "ratelimited"}', {"Retry-After": "9"})]
    assert teller.tell((NotificationType.FIRST_SEEN, EVENT)).wait_seconds == 9.0


def test_a_post_that_was_cut_off_goes_on_where_it_stopped(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    events = wave(fleet, 4)
    post = teller.post(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events])
    there.allowed = 2
    assert not teller.send(post).ok
    there.allowed = 100
    again = replace(teller.post(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events]), id=post.id)
    assert teller.send(again).ok
    assert len(there.cards) == 4
    assert sum(card.edits for card in there.cards) == 0


def test_what_is_not_json_is_no_success(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    there.instead = [Said(200, b"<html>maintenance</html>", {"Content-Type": "text/html"})]
    outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.ok, outcome.again) == (False, True)


def test_a_storm_is_one_card_that_is_edited(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    events = wave(fleet, 14)
    assert teller.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events[:12]]).ok
    (digest,) = there.cards
    assert "12 Reboot" in digest.seen
    assert digest.seen.index("Reboot of w0") < digest.seen.index("Reboot of w4")
    assert "w5" not in digest.seen
    # A few more have a card each; one of the storm that changes is an edit.
    claim(fleet, events[0])
    teller.tell((NotificationType.CLAIMED, events[0]), title="otto is on it: Reboot of w0")
    assert (len(there.cards), digest.edits, digest.thread) == (1, 1, ["otto is on it: Reboot of w0"])
    for number in range(12):
        fleet.say(f"w{number}")
    teller.tell(*[(NotificationType.ENDED, event_id) for event_id in events[:11]])
    teller.tell((NotificationType.ENDED, events[11]), title="Ended: Reboot of w11")
    assert (len(there.cards), there.wrong) == (1, [])
    # What comes later is no part of it, and what comes back neither.
    teller.tell((NotificationType.FIRST_SEEN, events[12]))
    teller.tell((NotificationType.CHANGED, events[0]))
    assert (len(there.cards), digest.edits) == (3, 3)


def test_what_joins_a_storm_is_heard_only_where_it_is_more_urgent(
    fleet: Fleet, teller: Teller, there: PretendSlack
) -> None:
    events = wave(fleet, 24)
    teller.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events[6:16]])
    (digest,) = there.cards
    teller.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events[16:]])
    assert (len(digest.thread), digest.broadcast) == (1, [])
    assert "18" in digest.thread[0]
    # These have nearer deadlines.
    teller.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events[:6]])
    assert len(digest.broadcast) == 1
    assert len(there.cards) == 1


def test_a_storm_that_was_told_twice_after_a_failure_counts_once(
    fleet: Fleet, teller: Teller, there: PretendSlack
) -> None:
    events = wave(fleet, 10)
    teller.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events])
    for number in range(10):
        fleet.say(f"w{number}")
    ended = [(NotificationType.ENDED, event_id) for event_id in events]
    # Edited, and then too much for the thread.
    there.allowed = 1
    post = teller.post(*ended)
    assert not teller.send(post).ok
    there.allowed = 100
    assert teller.send(replace(teller.post(*ended), id=post.id)).ok
    assert teller.send(replace(teller.post(*ended), id=post.id)).ok
    (digest,) = there.cards
    assert len(digest.thread) == 1


def test_a_thousand_events_are_a_handful_of_calls(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    (event_id,) = wave(fleet, 1)
    post = teller.post((NotificationType.FIRST_SEEN, event_id))
    (item,) = post.items
    many = tuple(replace(item, news=replace(item.news, subject=f"event:{number}")) for number in range(1000))
    storm = replace(post, items=many, moment="group")
    outcome = teller.send(storm)
    assert (outcome.ok, len(there.calls), len(there.cards)) == (True, 1, 1)
    assert "1,000 events" in there.cards[0].seen
    assert len(json.dumps(outcome.references["group"])) < 400_000


def test_without_a_signing_secret_there_is_no_button_that_nobody_hears(
    fleet: Fleet, teller: Teller, there: PretendSlack
) -> None:
    teller.values.pop("signing_secret")
    factories.announced(fleet)
    teller.tell((NotificationType.FIRST_SEEN, EVENT))
    assert EVENT not in there.cards[0].buttons.values()


def test_the_test_of_a_channel_is_seen_there(teller: Teller, there: PretendSlack) -> None:
    assert teller.tell().ok
    assert len(there.cards) == 1
    there.member = False
    assert teller.tell().answer == "not_in_channel"


def test_what_is_kept_and_said_holds_no_secret(fleet: Fleet, teller: Teller, there: PretendSlack) -> None:
    factories.announced(fleet)
    outcome = teller.tell((NotificationType.FIRST_SEEN, EVENT))
    assert TOKEN not in json.dumps([outcome.answer, list(Reference.objects.values_list("value", flat=True))])


def test_the_stand_in_refuses_what_the_real_one_refuses() -> None:
    header: dict[str, Any] = {"type": "header", "text": {"type": "plain_text", "text": "h" * 151}}
    section = {"type": "section", "text": {"type": "plain_text", "text": "s" * 3001}}
    for arguments in (
        {"text": ""},
        {"text": "a < b"},
        {"text": "t", "blocks": [header]},
        {"text": "t", "blocks": [section]},
        {"text": "t", "blocks": [{"type": "divider?"}]},
        {"text": "t", "blocks": [{"type": "section", "text": {"type": "plain_text", "text": "s" * 2900}}] * 5},
    ):
        assert list(faults(arguments)), arguments
    words = MessageWords("t", "t", ("t", "l"), "t", "/")
    assert not list(faults({"text": "t", "blocks": slack.blocks_of(words, "https://x/", claims="E")}))
