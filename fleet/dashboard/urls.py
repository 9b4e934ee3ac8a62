"""The pages."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from fleet.dashboard import (
    again,
    agent_package,
    blind_spots,
    bulk,
    caches,
    desk,
    drills,
    events,
    find,
    first_steps,
    fleet_map,
    inventory,
    login,
    machines,
    services,
    sets,
    storage,
    timeline,
    waves,
    worker,
)
from fleet.dashboard.approvals import views as approvals
from fleet.dashboard.history import handover, reports
from fleet.dashboard.messages import channels as message_channels
from fleet.dashboard.messages import log, overview
from fleet.dashboard.messages import routes as message_routes
from fleet.dashboard.people import mapping, members, outside, second_factor, sessions, sign_on, signing_in, you
from fleet.dashboard.policy import rules, stop, windows
from fleet.domain.history import Month
from fleet.domain.intake.documents import EVENT_ID


class EventId(StringConverter):
    """What an event may be called; anything else is no address here."""

    regex = EVENT_ID


class MonthConverter:
    """A month, such as `2026-11`."""

    regex = r"2[01][0-9]{2}-(?:0[1-9]|1[0-2])"

    def to_python(self, value: str) -> Month:
        return Month(*map(int, value.split("-")))

    def to_url(self, value: Month) -> str:
        return str(value)


register_converter(EventId, "event")
register_converter(MonthConverter, "month")

urlpatterns = [
    path("", desk.decision_queue, name="queue"),
    path("pulse/", desk.pulse, name="pulse"),
    path("find/", find.find_page, name="find"),
    path("views/", find.view_list, name="views"),
    path("views/save/", find.save_view, name="view-save"),
    path("views/<int:view_id>/delete/", find.delete_view, name="view-delete"),
    path("fleet/", fleet_map.map_page, name="fleet"),
    path("fleet/export.csv", fleet_map.map_csv, name="fleet-csv"),
    path("services/", services.service_page, name="service"),
    path("services/<path:name>/", services.service_page, name="service"),
    path("sets/", sets.set_list, name="sets"),
    path("sets/<int:set_id>/", sets.set_page, name="set"),
    path("sets/<int:set_id>/name/", sets.name_set, name="set-name"),
    path("sets/<int:set_id>/admissions/", sets.admit_by_rule, name="set-admissions"),
    path("sets/<int:set_id>/second-person/", sets.ask_for_second, name="set-second-person"),
    path("sets/<int:set_id>/step-up/", sets.ask_again, name="set-step-up"),
    path("sets/<int:set_id>/spares/", sets.spare_services, name="set-spares"),
    path("sets/<int:set_id>/needs/", sets.say_needs, name="set-needs"),
    path("sets/<int:set_id>/merge/", sets.merge_set, name="set-merge"),
    path("sets/<int:set_id>/drill/", drills.begin, name="set-drill"),
    path("drills/", drills.drill_list, name="drills"),
    path("drills/<int:drill_id>/", drills.drill_page, name="drill"),
    path("drills/<int:drill_id>/stop/", drills.stop, name="drill-stop"),
    path("blind-spots/", blind_spots.blind_spot_page, name="blind-spots"),
    path("machines/", machines.machine_list, name="machines"),
    path("machines/<int:machine_id>/", machines.machine_page, name="machine"),
    path("machines/<int:machine_id>/revoke/", machines.revoke, name="machine-revoke"),
    path("machines/<int:machine_id>/move/", machines.move, name="machine-move"),
    path("machines/<int:machine_id>/lift/", machines.lift, name="machine-lift"),
    path("admissions/", machines.admission_list, name="admissions"),
    path("admissions/decide/", machines.decide, name="admissions-decide"),
    path("join-tokens/", machines.token_list, name="join-tokens"),
    path("join-tokens/make/", machines.make_token, name="join-token-make"),
    path("join-tokens/<str:prefix>/end/", machines.end_token, name="join-token-end"),
    path("agent/<str:name>", agent_package.download, name="agent-package"),
    path("inventory/", inventory.inventory_page, name="inventory"),
    path("inventory/take/", inventory.take_inventory, name="inventory-take"),
    path("first-steps/", first_steps.steps_page, name="first-steps"),
    path("first-steps/token/", first_steps.make_token, name="first-steps-token"),
    path("first-steps/sets/<int:set_id>/name/", first_steps.name_set, name="first-steps-name"),
    path("first-steps/put-away/", first_steps.put_away, name="first-steps-put-away"),
    path("history/", events.event_list, name="events"),
    path("events/<event:event_id>/", events.event_page, name="event"),
    path("events/<event:event_id>/archive/", events.event_archive, name="event-archive"),
    path("events/<event:event_id>/documents/", events.event_documents, name="event-documents"),
    path("events/<event:event_id>/export.json", events.event_export, name="event-export"),
    path("events/<event:event_id>/approve/", approvals.approve, name="event-approve"),
    path("approvals/<int:approval_id>/withdraw/", approvals.withdraw, name="approval-withdraw"),
    path("approvals/<int:approval_id>/consent/", approvals.consent, name="approval-consent"),
    path("events/<event:event_id>/claim/", approvals.claim, name="event-claim"),
    path("events/<event:event_id>/give-back/", approvals.give_back, name="event-give-back"),
    path("events/<event:event_id>/hold/", approvals.hold, name="event-hold"),
    path("events/<event:event_id>/lift/", approvals.lift, name="event-lift"),
    path("bulk/", bulk.bulk, name="bulk"),
    path("bulk/undo/", bulk.undo, name="bulk-undo"),
    path("waves/", waves.wave_list, name="waves"),
    path("waves/begin/", waves.begin_wave, name="wave-begin"),
    path("waves/<int:wave_id>/", waves.wave_page, name="wave"),
    path("waves/<int:wave_id>/stop/", waves.stop_wave, name="wave-stop"),
    path("caches/", caches.cache_list, name="caches"),
    path("caches/<int:cache_id>/", caches.cache_page, name="cache"),
    path("maintenances/<int:maintenance_id>/", caches.maintenance_page, name="maintenance"),
    path("stop/", stop.stop_page, name="stop"),
    path("stop/banner/", stop.banner, name="stop-banner"),
    path("stop/all/", stop.stop_all, name="stop-all"),
    path("stop/lift/", stop.lift, name="stop-lift"),
    path("policy/", rules.rule_list, name="rules"),
    path("rules/new/", rules.rule_new, name="rule-new"),
    path("rules/<int:rule_id>/", rules.rule_page, name="rule"),
    path("rules/<int:rule_id>/switch/", rules.rule_switch, name="rule-switch"),
    path("rules/<int:rule_id>/move/", rules.rule_move, name="rule-move"),
    path("rules/<int:rule_id>/delete/", rules.rule_delete, name="rule-delete"),
    path("no-approval-windows/", windows.window_new, name="window-new"),
    path("no-approval-windows/<int:window_id>/delete/", windows.window_delete, name="window-delete"),
    path("messages/", overview.overview, name="messages"),
    path("messages/log/", log.sent_list, name="message-log"),
    path("messages/log/unsent/", log.unsent_list, name="message-unsent"),
    path("messages/log/<uuid:delivery_id>/", log.delivery_page, name="delivery"),
    path("messages/log/<uuid:delivery_id>/again/", log.delivery_again, name="delivery-again"),
    path("channels/new/<slug:kind>/", message_channels.channel_new, name="channel-new"),
    path("channels/<int:channel_id>/", message_channels.channel_page, name="channel"),
    path("channels/<int:channel_id>/switch/", message_channels.channel_switch, name="channel-switch"),
    path("channels/<int:channel_id>/test/", message_channels.channel_test, name="channel-test"),
    path("channels/<int:channel_id>/rotate/", message_channels.channel_rotate, name="channel-rotate"),
    path("channels/<int:channel_id>/delete/", message_channels.channel_delete, name="channel-delete"),
    path("routes/new/", message_routes.route_new, name="route-new"),
    path("routes/<int:route_id>/", message_routes.route_page, name="route"),
    path("routes/<int:route_id>/switch/", message_routes.route_switch, name="route-switch"),
    path("routes/<int:route_id>/delete/", message_routes.route_delete, name="route-delete"),
    path("timeline/", timeline.fleet_timeline, name="timeline"),
    path("storage/", storage.storage_page, name="storage"),
    path("audit/", timeline.audit_page, name="audit"),
    path("audit/export.csv", timeline.audit_csv, name="audit-csv"),
    path("audit/export.jsonl", timeline.audit_jsonl, name="audit-jsonl"),
    path("handover/", handover.handover_page, name="handover"),
    path("handover/read/", handover.read, name="handover-read"),
    path("reports/", reports.report_list, name="reports"),
    path("reports/<month:month>/", reports.month_page, name="report-month"),
    path("reports/<month:month>/<slug:table>.csv", reports.month_csv, name="report-month-csv"),
    path("reports/events/<event:event_id>/", reports.event_page, name="report-event"),
    path("reports/events/<event:event_id>/report.md", reports.event_markdown, name="report-event-markdown"),
    path("reports/events/<event:event_id>/report.json", reports.event_json, name="report-event-json"),
    path("you/", you.you, name="you"),
    path("you/messages/", overview.own, name="you-messages"),
    path("you/settings/", you.choose, name="you-settings"),
    path("you/signing-in/", signing_in.signing_in, name="you-signing-in"),
    path("you/signing-in/app/", signing_in.app_page, name="factor-app"),
    path("you/signing-in/app/add/", signing_in.add_app, name="factor-app-add"),
    path("you/signing-in/passkey/", signing_in.passkey_page, name="factor-passkey"),
    path("you/signing-in/passkey/add/", signing_in.add_passkey, name="factor-passkey-add"),
    path("you/signing-in/codes/", signing_in.new_codes, name="factor-codes"),
    path("you/signing-in/<int:factor_id>/remove/", signing_in.remove_factor, name="factor-remove"),
    path("you/sessions/", sessions.sessions_page, name="you-sessions"),
    path("you/sessions/end/", sessions.end_others, name="sessions-end-others"),
    path("you/again/", second_factor.step_up_page, name="step-up"),
    path("you/password/", you.password, name="you-password"),
    path("you/accounts/<str:invitation>/", outside.account, name="you-account"),
    path("you/accounts/<str:invitation>/link/", outside.link_account, name="you-account-link"),
    path("you/accounts/<int:account_id>/unlink/", outside.unlink_account, name="you-account-unlink"),
    path("you/tokens/", you.make_token, name="token-make"),
    path("you/browser/", you.tell_browser, name="browser-tell"),
    path("you/browser/key/", you.push_key, name="browser-key"),
    path("you/browser/<int:channel_id>/end/", you.end_browser, name="browser-end"),
    path("you/calendars/", you.make_calendar, name="calendar-make"),
    path("you/calendars/<str:prefix>/end/", you.end_calendar, name="calendar-end"),
    path("sessions/<int:session_id>/end/", sessions.end_session, name="session-end"),
    path("tokens/<str:prefix>/end/", you.end_token, name="token-end"),
    path("people/", members.people_page, name="people"),
    path("people/new/", members.make_person, name="person-make"),
    path("people/<str:username>/", members.person_page, name="person"),
    path("people/<str:username>/change/", members.change_person, name="person-change"),
    path("people/<str:username>/factors/", members.reset_factors, name="person-factors"),
    path("people/<str:username>/password/", members.reset_password, name="person-password"),
    path("people/<str:username>/sessions/end/", sessions.end_all, name="person-sessions-end"),
    path("people/<str:username>/forget/", members.forget_page, name="person-forget"),
    path("people/<str:username>/forget/now/", members.forget_person, name="person-forget-now"),
    # Where these stood before the desk had four places.
    path("events/", RedirectView.as_view(pattern_name="events", query_string=True)),
    path("rules/", RedirectView.as_view(pattern_name="rules", query_string=True)),
    path("sw.js", worker.service_worker, name="service-worker"),
    path("manifest.webmanifest", worker.manifest, name="manifest"),
    path("accounts/login/", login.Login.as_view(), name="login"),
    path("accounts/passkey/", second_factor.passkey_login, name="login-passkey"),
    path("accounts/second-factor/", second_factor.at_login, name="mfa_authenticate"),
    path("accounts/again/", again.again, name="login-again"),
    path("accounts/sign-on/", sign_on.begin, name="sign-on"),
    path("accounts/sign-on/back/", sign_on.back, name="sign-on-back"),
    path("accounts/sign-on/end/", sign_on.end, name="sign-on-end"),
    path("sign-on/", mapping.mapping_page, name="mapping"),
    path("sign-on/try/", mapping.try_mapping, name="mapping-try"),
    path("sign-on/lines/", mapping.make_line, name="mapping-make"),
    path("sign-on/lines/<int:grant_id>/", mapping.change_line, name="mapping-change"),
    path("sign-on/lines/<int:grant_id>/delete/", mapping.delete_line, name="mapping-delete"),
    path("sign-on/links/", mapping.link_account, name="mapping-link"),
    path("sign-on/links/<int:sign_on_id>/end/", mapping.unlink_account, name="mapping-unlink"),
    path("accounts/again/factor/", again.again_factor, name="login-again-factor"),
    path("accounts/logout/", login.Logout.as_view(), name="logout"),
    # The same by the names that django-allauth knows; none of its own pages is here.
    path("accounts/login/", login.Login.as_view(), name="account_login"),
    path("accounts/logout/", login.Logout.as_view(), name="account_logout"),
]
