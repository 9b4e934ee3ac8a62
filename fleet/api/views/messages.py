"""The log of messages: the installation's, and one's own."""

from fleet.api.authentication import person_of
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import PLACES
from fleet.api.shapes.messages import MessageShape, SentAgain, SentAgainShape
from fleet.api.views.owners import NEEDS, ByOwner
from fleet.operations.messages import routes as route_changes
from fleet.projections.filters import MessageFilter
from fleet.projections.messages import log
from fleet.projections.pages import Page

NO_MESSAGE = ("not-found", "There is no message with this id.")
FILTERS = filters_of(
    MessageFilter,
    {
        **PLACES,
        "channel": "The id of a channel; may be repeated.",
        "state": "May be given several times.",
        "event": "An EventId.",
        "moment": "May be given several times.",
        "since": "Messages made at or after this time.",
    },
)


class Messages(ByOwner):
    @describe(
        "list_messages",
        "Who was told what, newest first",
        "Of the installation's channels and one's own; also what no route wanted.",
        page=MessageShape,
        parameters=[*FILTERS, ordering("created_at")],
    )
    def get(self) -> Page[log.MessageRow]:
        person = person_of(self.request)
        rows = self.filtered(MessageFilter, queryset=log.messages_for(person))
        return log.listing(rows, person=person, **self.place)


class Message(ByOwner):
    @describe(
        "get_message",
        "One message",
        "What it is about, who it went to, and each attempt.",
        answer=MessageShape,
        missing=NO_MESSAGE,
    )
    def get(self, message_id: int) -> log.MessageRow | None:
        return log.detail(message_id=message_id, person=person_of(self.request))


class RedeliverMessage(ByOwner):
    @describe(
        "redeliver_message",
        "Send a message again",
        f"Under the same id, and with it what was sent together. {NEEDS}",
        needs="read",
        answer=SentAgainShape,
        status=201,
        location="messages/{message_id}/",
        problems=("not-redeliverable",),
    )
    def post(self, message_id: int) -> SentAgain:
        return SentAgain(route_changes.redeliver(message_id=message_id, **self.acting))
