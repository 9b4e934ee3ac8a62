"""The pages."""

from django.contrib.auth import views as auth
from django.urls import path, register_converter
from django.urls.converters import StringConverter

from fleet.dashboard import (
    arranging,
    audit_views,
    cache_views,
    decisions,
    drilling,
    login,
    people_views,
    rule_views,
    views,
    wave_views,
)
from fleet.domain.documents import EVENT_ID


class EventId(StringConverter):
    """What an event may be called; anything else is no address here."""

    regex = EVENT_ID


register_converter(EventId, "event")

urlpatterns = [
    path("", views.decision_queue, name="queue"),
    path("pulse/", views.pulse, name="pulse"),
    path("sets/", views.set_list, name="sets"),
    path("sets/<int:set_id>/", views.set_page, name="set"),
    path("sets/<int:set_id>/name/", arranging.name_set, name="set-name"),
    path("sets/<int:set_id>/second-person/", arranging.ask_for_second, name="set-second-person"),
    path("sets/<int:set_id>/merge/", arranging.merge_set, name="set-merge"),
    path("sets/<int:set_id>/drill/", drilling.begin, name="set-drill"),
    path("drills/", drilling.drill_list, name="drills"),
    path("drills/<int:drill_id>/", drilling.drill_page, name="drill"),
    path("drills/<int:drill_id>/stop/", drilling.stop, name="drill-stop"),
    path("blind-spots/", views.blind_spot_page, name="blind-spots"),
    path("machines/", views.machine_list, name="machines"),
    path("machines/<int:machine_id>/", views.machine_page, name="machine"),
    path("events/", views.event_list, name="events"),
    path("events/<event:event_id>/", views.event_page, name="event"),
    path("events/<event:event_id>/documents/", views.event_documents, name="event-documents"),
    path("events/<event:event_id>/export.json", views.event_export, name="event-export"),
    path("events/<event:event_id>/approve/", decisions.approve, name="event-approve"),
    path("approvals/<int:approval_id>/withdraw/", decisions.withdraw, name="approval-withdraw"),
    path("approvals/<int:approval_id>/consent/", decisions.consent, name="approval-consent"),
    path("events/<event:event_id>/claim/", decisions.claim, name="event-claim"),
    path("events/<event:event_id>/give-back/", decisions.give_back, name="event-give-back"),
    path("events/<event:event_id>/hold/", decisions.hold, name="event-hold"),
    path("events/<event:event_id>/lift/", decisions.lift, name="event-lift"),
    path("waves/", wave_views.wave_list, name="waves"),
    path("waves/begin/", wave_views.begin_wave, name="wave-begin"),
    path("waves/<int:wave_id>/", wave_views.wave_page, name="wave"),
    path("waves/<int:wave_id>/stop/", wave_views.stop_wave, name="wave-stop"),
    path("caches/", cache_views.cache_list, name="caches"),
    path("caches/<int:cache_id>/", cache_views.cache_page, name="cache"),
    path("maintenances/<int:maintenance_id>/", cache_views.maintenance_page, name="maintenance"),
    path("rules/", rule_views.rule_list, name="rules"),
    path("rules/new/", rule_views.rule_new, name="rule-new"),
    path("rules/<int:rule_id>/", rule_views.rule_page, name="rule"),
    path("rules/<int:rule_id>/switch/", rule_views.rule_switch, name="rule-switch"),
    path("rules/<int:rule_id>/move/", rule_views.rule_move, name="rule-move"),
    path("rules/<int:rule_id>/delete/", rule_views.rule_delete, name="rule-delete"),
    path("no-approval-windows/", rule_views.window_new, name="window-new"),
    path("no-approval-windows/<int:window_id>/delete/", rule_views.window_delete, name="window-delete"),
    path("timeline/", views.fleet_timeline, name="timeline"),
    path("audit/", audit_views.audit_page, name="audit"),
    path("audit/export.csv", audit_views.audit_csv, name="audit-csv"),
    path("audit/export.jsonl", audit_views.audit_jsonl, name="audit-jsonl"),
    path("you/", people_views.you, name="you"),
    path("you/settings/", people_views.choose, name="you-settings"),
    path("you/password/", people_views.password, name="you-password"),
    path("you/tokens/", people_views.make_token, name="token-make"),
    path("tokens/<str:prefix>/end/", people_views.end_token, name="token-end"),
    path("people/", people_views.people_page, name="people"),
    path("people/new/", people_views.make_person, name="person-make"),
    path("people/<str:username>/", people_views.person_page, name="person"),
    path("people/<str:username>/change/", people_views.change_person, name="person-change"),
    path("people/<str:username>/password/", people_views.reset_password, name="person-password"),
    path("accounts/login/", login.Login.as_view(), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
]
