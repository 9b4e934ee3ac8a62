"""Loading decisions as they are checked again before anything is sent."""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.contrib.auth.models import User

from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.approvals.recheck import Decision
from fleet.domain.people import Right
from fleet.domain.policy.rules import StandingRule, accepted, decides_still
from fleet.domain.reason import Reason
from fleet.models.approvals import Approval
from fleet.models.people import ApiToken, know_rights_of, rights_of
from fleet.models.policy import Rule, rule_of, rules_in_force


def decision_of(approval: Approval, *, lost: Reason | None = None, accepts: Collection[str] | None = None) -> Decision:
    """Return an approval's decision by its row alone: whether people and rules still stand by it is not known."""
    of_rule = approval.rule_id is not None and approval.decided_by_id is None
    if of_rule and accepts is None:
        accepts = [one["code"] for one in approval.overrides]
    return Decision(
        version=approval.event_version,
        shown=approval.decided_on,
        overrides=tuple(approval.overrides),
        accepted=frozenset(accepts or ()) if of_rule else None,
        consented=approval.consented_by_id is not None,
        granted_at=approval.granted_at,
        lost=lost,
    )


def load_decisions(
    approvals: Collection[Approval], facts: Mapping[int, EventFacts], *, now: datetime
) -> dict[int, Decision]:
    """Return the decisions of these approvals by row id, with what people and rules have lost since. `facts` are those
    of their events, by row id. At most five queries.
    """
    ids = {pk for one in approvals for pk in (one.decided_by_id, one.consented_by_id) if pk is not None}
    people = User.objects.in_bulk(ids) if ids else {}
    know_rights_of(people.values())
    token_ids = {pk for one in approvals for pk in (one.token_id, one.consent_token_id) if pk is not None}
    tokens = ApiToken.objects.in_bulk(token_ids) if token_ids else {}
    rule_ids = {one.rule_id for one in approvals if one.rule_id is not None and one.decided_by_id is None}
    names = dict(Rule.objects.filter(pk__in=rule_ids).values_list("pk", "name")) if rule_ids else {}
    rules = [rule_of(row) for row in rules_in_force(now=now).values()] if rule_ids else []
    found = {}
    for approval in approvals:
        of_event = facts[approval.event_id]
        if approval.rule_id is not None and approval.decided_by_id is None:
            rule = _rule_of(approval, rules, of_event)
            lost = None if rule else Reason("rule-decides-otherwise", rule=names.get(approval.rule_id, ""))
            found[approval.pk] = decision_of(approval, lost=lost, accepts=accepted(rule) if rule else ())
        else:
            found[approval.pk] = decision_of(approval, lost=_lost(approval, of_event, people, tokens, now))
    return found


def _rule_of(approval: Approval, rules: Collection[StandingRule], facts: EventFacts) -> StandingRule | None:
    return decides_still(rules, approval.rule_id, When(approval.when), facts, decided_at=approval.decided_at)


def _lost(
    approval: Approval,
    facts: EventFacts,
    people: Mapping[int, User],
    tokens: Mapping[int, ApiToken],
    now: datetime,
) -> Reason | None:
    """Return who of the two persons could not decide so now, and why."""
    # Only an approver overrides a guard that blocks; the second person is one.
    overrode = any(one["code"] == "set-in-flight" for one in approval.overrides)
    own = Right.OVERRIDE if overrode and approval.consented_by_id is None else Right.APPROVE
    deciders = (
        (approval.decided_by_id, own, "approve", approval.token_id),
        (approval.consented_by_id, Right.OVERRIDE, "consent", approval.consent_token_id),
    )
    for person_id, right, doing, token_id in deciders:
        person = people.get(person_id or 0)
        if person is None:
            continue
        name = person.get_username()
        if not person.is_active:
            return Reason("decider-lost-account", by=name)
        missing = rights_of(person).missing(right, facts.place, doing=doing)
        if missing is not None:
            return Reason("decider-lost-right", by=name, missing=missing)
        token = tokens.get(token_id or 0)
        if token is not None and _has_ended(token, now):
            return Reason("decider-lost-token", by=name, token=token.name)
    return None


def _has_ended(token: ApiToken, now: datetime) -> bool:
    return token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now)
