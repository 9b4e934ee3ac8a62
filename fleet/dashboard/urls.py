"""URLs of the pages; `fleet.urls` adds those of the annexes."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from fleet.dashboard import (
    agent_package,
    bulk,
    caches,
    desk,
    events,
    fleet_map,
    machines,
    policy,
    sets,
    timeline,
    waves,
)
from fleet.domain.intake import EVENT_ID


class EventId(StringConverter):
    """URL converter for an EventId; other texts do not match."""

    regex = EVENT_ID


register_converter(EventId, "event")

PAGES = [
    path("", desk.decision_queue, name="queue"),
    path("pulse/", desk.pulse, name="pulse"),
    path("find/", desk.find_page, name="find"),
    path("views/", desk.view_list, name="views"),
    path("views/save/", desk.save_view, name="view-save"),
    path("views/<int:view_id>/delete/", desk.delete_view, name="view-delete"),
    path("fleet/", fleet_map.map_page, name="fleet"),
    path("fleet/export.csv", fleet_map.map_csv, name="fleet-csv"),
    path("services/", caches.service_page, name="service"),
    path("services/<path:name>/", caches.service_page, name="service"),
    path("sets/", sets.set_list, name="sets"),
    path("sets/<int:set_id>/", sets.set_page, name="set"),
    path("sets/<int:set_id>/name/", sets.name_set, name="set-name"),
    path("sets/<int:set_id>/admissions/", sets.admit_by_rule, name="set-admissions"),
    path("sets/<int:set_id>/second-person/", sets.ask_for_second, name="set-second-person"),
    path("sets/<int:set_id>/step-up/", sets.ask_again, name="set-step-up"),
    path("sets/<int:set_id>/spares/", sets.exempt_services, name="set-exempt-accounts"),
    path("sets/<int:set_id>/needs/", sets.set_min_live, name="set-min-live"),
    path("sets/<int:set_id>/merge/", sets.merge_set, name="set-merge"),
    path("sets/<int:set_id>/drill/", waves.begin, name="set-drill"),
    path("drills/", waves.drill_list, name="drills"),
    path("drills/<int:drill_id>/", waves.drill_page, name="drill"),
    path("drills/<int:drill_id>/stop/", waves.stop, name="drill-stop"),
    path("blind-spots/", desk.blind_spot_page, name="blind-spots"),
    path("machines/", machines.machine_list, name="machines"),
    path("machines/decommission/", machines.decommission_machines, name="machines-decommission"),
    path("machines/<int:machine_id>/", machines.machine_page, name="machine"),
    path("machines/<int:machine_id>/revoke/", machines.revoke, name="machine-revoke"),
    path("machines/<int:machine_id>/discount/", machines.discount, name="machine-discount"),
    path("machines/<int:machine_id>/move/", machines.move, name="machine-move"),
    path("machines/<int:machine_id>/lift/", machines.lift, name="machine-lift"),
    path("admissions/", machines.admission_list, name="admissions"),
    path("admissions/decide/", machines.decide, name="admissions-decide"),
    path("join-tokens/", machines.token_list, name="join-tokens"),
    path("join-tokens/make/", machines.make_token, name="join-token-make"),
    path("join-tokens/<str:prefix>/end/", machines.end_token, name="join-token-end"),
    path("agent/<str:name>", agent_package.download, name="agent-package"),
    path("inventory/", machines.inventory_page, name="inventory"),
    path("inventory/take/", machines.take_inventory, name="inventory-take"),
    path("first-steps/", desk.steps_page, name="first-steps"),
    path("first-steps/entrance/", desk.choose_entrance, name="first-steps-entrance"),
    path("first-steps/token/", desk.make_token, name="first-steps-token"),
    path("first-steps/sets/<int:set_id>/name/", desk.name_set, name="first-steps-name"),
    path("first-steps/put-away/", desk.dismiss, name="onboarding-dismiss"),
    path("history/", events.event_list, name="events"),
    path("events/<event:event_id>/", events.event_page, name="event"),
    path("events/<event:event_id>/archive/", events.event_archive, name="event-archive"),
    path("events/<event:event_id>/documents/", events.event_documents, name="event-documents"),
    path("events/<event:event_id>/export.json", events.event_export, name="event-export"),
    path("events/<event:event_id>/approve/", events.approve, name="event-approve"),
    path("approvals/<int:approval_id>/withdraw/", events.withdraw, name="approval-withdraw"),
    path("approvals/<int:approval_id>/consent/", events.consent, name="approval-consent"),
    path("events/<event:event_id>/claim/", events.claim, name="event-claim"),
    path("events/<event:event_id>/give-back/", events.give_back, name="event-give-back"),
    path("events/<event:event_id>/hold/", events.hold, name="event-hold"),
    path("events/<event:event_id>/lift/", events.lift, name="event-lift"),
    path("bulk/", bulk.bulk, name="bulk"),
    path("bulk/state/", bulk.bulk_state, name="bulk-state"),
    path("bulk/undo/", bulk.undo, name="bulk-undo"),
    path("waves/", waves.wave_list, name="waves"),
    path("waves/begin/", waves.begin_wave, name="wave-begin"),
    path("waves/<int:wave_id>/", waves.wave_page, name="wave"),
    path("waves/<int:wave_id>/stop/", waves.stop_wave, name="wave-stop"),
    path("caches/", caches.cache_list, name="caches"),
    path("caches/<int:cache_id>/", caches.cache_page, name="cache"),
    path("maintenances/<int:maintenance_id>/", caches.maintenance_page, name="maintenance"),
    path("stop/", policy.stop_page, name="stop"),
    path("stop/banner/", policy.banner, name="stop-banner"),
    path("stop/all/", policy.stop_all, name="stop-all"),
    path("stop/lift/", policy.lift, name="stop-lift"),
    path("policy/", policy.rule_list, name="rules"),
    path("rules/new/", policy.rule_new, name="rule-new"),
    path("rules/<int:rule_id>/", policy.rule_page, name="rule"),
    path("rules/<int:rule_id>/switch/", policy.rule_switch, name="rule-switch"),
    path("rules/<int:rule_id>/move/", policy.rule_move, name="rule-move"),
    path("rules/<int:rule_id>/delete/", policy.rule_delete, name="rule-delete"),
    path("no-approval-windows/", policy.window_new, name="window-new"),
    path("no-approval-windows/<int:window_id>/delete/", policy.window_delete, name="window-delete"),
    path("timeline/", timeline.fleet_timeline, name="timeline"),
    # Earlier URLs of these pages.
    path("events/", RedirectView.as_view(pattern_name="events", query_string=True)),
    path("rules/", RedirectView.as_view(pattern_name="rules", query_string=True)),
]
