"""Slack, played by a stand-in that refuses what the real one refuses: what people see in the channel."""

import json
from dataclasses import replace

import pytest

from fleet.notifications.channels import slack
from fleet.notifications.formats import for_slack
from fleet.notifications.models import Reference
from fleet.notifications.notification_types import NotificationType
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.posts import ChannelDriver, claim, driver_of, wave
from tests.messages.pretend import Said
from tests.messages.pretend_slack import TOKEN, PretendSlack, faults, no

pytestmark = pytest.mark.django_db


@pytest.fixture
def driver(fleet: Fleet, there: PretendSlack) -> ChannelDriver:
    factories.announced(fleet)
    return driver_of(slack, fleet, token=TOKEN, channel="#shop-ops", signing_secret="s" * 32)


def test_event_has_one_card_edited_in_place_with_a_thread(driver: ChannelDriver, there: PretendSlack) -> None:
    outcome = driver.tell(NotificationType.FIRST_SEEN, lines=["4 of 6 stay up."])
    assert (outcome.ok, outcome.wait_seconds) == (True, 1.0)
    assert TOKEN not in json.dumps([outcome.answer, list(Reference.objects.values_list("value", flat=True))])
    (card,) = there.cards
    assert "Freeze of vm1, vm2" in card.seen and "4 of 6 stay up." in card.seen
    assert card.text == "Freeze of vm1, vm2"
    assert list(card.buttons.values()) == [f"https://drydock.example/events/{EVENT}/", EVENT]
    driver.fleet.later(5)
    claim(driver.fleet)
    driver.tell(NotificationType.CLAIMED, title="otto is on it")
    assert (len(there.cards), card.edits, card.thread, card.broadcast) == (1, 1, ["otto is on it"], [])
    assert "otto is on it" in card.seen
    # Other users take a claim over on the page, so the card has no button for it.
    assert EVENT not in card.buttons.values()
    driver.fleet.later(60)
    driver.fleet.all_say()
    driver.tell(NotificationType.ENDED, title="Ended")
    assert (len(there.cards), card.edits, card.thread) == (1, 2, ["otto is on it", "Ended"])
    assert there.wrong == []


def test_loud_types_are_broadcast_to_the_channel(driver: ChannelDriver, there: PretendSlack) -> None:
    """An edit of the card notifies no user in Slack, so loud types are broadcast."""
    driver.first_seen(EVENT)
    for moment in ("event.changed", "event.undecided", "approval.overdue", "event.started"):
        driver.tell(NotificationType(moment), title=moment)
    assert there.cards[0].broadcast == ["event.changed", "event.undecided", "approval.overdue"]


def test_long_texts_stay_within_slack_limits(driver: ChannelDriver, there: PretendSlack) -> None:
    for text in ("&" * 9000, "\N{PILE OF POO}" * 9000, "\x00" * 50, "", "a\u202eb" * 5000):
        assert driver.tell(NotificationType.FIRST_SEEN, title=text or " ", lines=[text] * 300).ok
        assert driver.tell(NotificationType.CHANGED, title=text or " ", lines=[text] * 300).ok
        assert there.wrong == []


def test_entities_are_never_cut() -> None:
    for most in range(2, 60):
        text = for_slack("a&<b>" * 20, most)
        assert len(text) <= most
        assert not list(faults({"text": text}))


def test_deleted_card_is_posted_again(driver: ChannelDriver, there: PretendSlack) -> None:
    driver.first_seen(EVENT)
    there.cards.clear()
    assert driver.tell(NotificationType.CHANGED).ok
    assert driver.tell(NotificationType.STARTED).ok
    (card,) = there.cards
    assert (card.edits, len(card.thread)) == (1, 1)


def test_rejected_blocks_fall_back_to_plain_text(driver: ChannelDriver, there: PretendSlack) -> None:
    there.instead = [no("invalid_blocks")]
    assert driver.first_seen(EVENT).ok
    assert [(card.text, card.blocks) for card in there.cards] == [("Freeze of vm1, vm2", [])]


CODES = ("channel_not_found", "not_in_channel", "invalid_auth", "token_revoked", "is_archived", "internal_error")


def test_refusals_are_retried_unless_they_are_about_the_text(driver: ChannelDriver, there: PretendSlack) -> None:
    limited = Said(429, b'{"ok": false, "error": "ratelimited"}', {"Retry-After": "7"})
    html = Said(200, b"<html>maintenance</html>", {"Content-Type": "text/html"})
    for answers, again, wait, words in (
        *(([no(code)], True, None, code) for code in CODES),
        ([no("msg_too_long")] * 2, False, None, "msg_too_long"),
        ([limited], True, 7.0, "ratelimited"),
        ([no("ratelimited")], True, 30.0, "ratelimited"),
        ([html], True, None, "<html>maintenance"),
    ):
        there.instead = list(answers)
        outcome = driver.first_seen(EVENT)
        assert (outcome.ok, outcome.again, outcome.gone, outcome.wait_seconds) == (False, again, False, wait), words
        assert outcome.answer.startswith(words)
        assert driver.first_seen(EVENT).ok
        # The next one is about a new card, too.
        Reference.objects.all().delete()


def test_interrupted_delivery_resumes_without_repeats(driver: ChannelDriver, there: PretendSlack) -> None:
    events = wave(driver.fleet, 4)
    news = [(NotificationType.FIRST_SEEN, event_id) for event_id in events]
    for there.allowed, is_ok in ((2, False), (100, True)):
        assert driver.send(driver.post(*news, post_id="1")).ok is is_ok
    assert [card.edits for card in there.cards] == [0] * 4


def test_storm_is_one_digest_card(driver: ChannelDriver, there: PretendSlack) -> None:
    events = wave(driver.fleet, 14)
    assert driver.first_seen(*events[:12]).ok
    (digest,) = there.cards
    assert "12 Reboot" in digest.seen
    assert digest.seen.index("Reboot of w0") < digest.seen.index("Reboot of w4")
    assert "w5" not in digest.seen
    # A few more have a card each; one of the storm that changes is an edit.
    claim(driver.fleet, events[0])
    driver.tell((NotificationType.CLAIMED, events[0]), title="otto is on it: Reboot of w0")
    assert (len(there.cards), digest.edits, digest.thread) == (1, 1, ["otto is on it: Reboot of w0"])
    for number in range(12):
        driver.fleet.say(f"w{number}")
    driver.tell(*[(NotificationType.ENDED, event_id) for event_id in events[:11]])
    driver.tell((NotificationType.ENDED, events[11]), title="Ended: Reboot of w11")
    assert (len(there.cards), there.wrong) == (1, [])
    # What comes later is no part of it, and what comes back neither.
    driver.tell((NotificationType.FIRST_SEEN, events[12]))
    driver.tell((NotificationType.CHANGED, events[0]))
    assert (len(there.cards), digest.edits) == (3, 3)


def test_digest_is_broadcast_only_when_more_urgent(driver: ChannelDriver, there: PretendSlack) -> None:
    events = wave(driver.fleet, 24)
    driver.first_seen(*events[6:16])
    (digest,) = there.cards
    driver.first_seen(*events[16:])
    assert (len(digest.thread), digest.broadcast) == (1, [])
    assert "18" in digest.thread[0]
    # These have nearer deadlines.
    driver.first_seen(*events[:6])
    assert len(digest.broadcast) == 1
    assert len(there.cards) == 1


def test_retried_digest_counts_events_once(driver: ChannelDriver, there: PretendSlack) -> None:
    events = wave(driver.fleet, 10)
    driver.first_seen(*events)
    for number in range(10):
        driver.fleet.say(f"w{number}")
    ended = [(NotificationType.ENDED, event_id) for event_id in events]
    # Edited, and then too much for the thread.
    for there.allowed, is_ok in ((1, False), (100, True), (100, True)):
        assert driver.send(driver.post(*ended, post_id="1")).ok is is_ok
    (digest,) = there.cards
    assert len(digest.thread) == 1


def test_thousand_events_need_one_call(driver: ChannelDriver, there: PretendSlack) -> None:
    (event_id,) = wave(driver.fleet, 1)
    post = driver.post((NotificationType.FIRST_SEEN, event_id))
    (item,) = post.items
    many = tuple(replace(item, news=replace(item.news, subject=f"event:{number}")) for number in range(1000))
    storm = replace(post, items=many, moment="group")
    outcome = driver.send(storm)
    assert (outcome.ok, len(there.calls), len(there.cards)) == (True, 1, 1)
    assert "1,000 events" in there.cards[0].seen
    assert len(json.dumps(outcome.references["group"])) < 400_000


def test_channel_test_is_posted(driver: ChannelDriver, there: PretendSlack) -> None:
    assert driver.tell().ok
    assert len(there.cards) == 1
    there.member = False
    assert driver.tell().answer == "not_in_channel"
    there.member = True
    # Without a signing secret, Slack cannot report a press of the button.
    driver.values.pop("signing_secret")
    driver.first_seen(EVENT)
    assert EVENT not in there.cards[1].buttons.values()
