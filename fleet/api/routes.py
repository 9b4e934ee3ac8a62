"""The calls and their addresses below `/api/`."""

from django.urls import path

from fleet.api.views import approvals, audit, bulk, caches, claims, events, inventory, machines, people, sets

CALLS = [
    path("v1/sets/", sets.Sets.as_view(), name="api-sets"),
    path("v1/sets/<int:set_id>/", sets.Set.as_view(), name="api-set"),
    path("v1/sets/<int:set_id>/merge/", sets.MergeSet.as_view(), name="api-set-merge"),
    path("v1/inventory/", inventory.Inventory.as_view(), name="api-inventory"),
    path("v1/blind-spots/", inventory.BlindSpots.as_view(), name="api-blind-spots"),
    path("v1/machines/", machines.Machines.as_view(), name="api-machines"),
    path("v1/machines/<int:machine_id>/", machines.Machine.as_view(), name="api-machine"),
    path("v1/machines/<int:machine_id>/revoke/", machines.RevokeMachine.as_view(), name="api-machine-revoke"),
    path("v1/join-tokens/", machines.JoinTokens.as_view(), name="api-join-tokens"),
    path("v1/events/", events.Events.as_view(), name="api-events"),
    path("v1/events/<str:event_id>/", events.Event.as_view(), name="api-event"),
    path("v1/events/<str:event_id>/timeline/", events.EventTimeline.as_view(), name="api-event-timeline"),
    path("v1/events/<str:event_id>/documents/", events.EventDocuments.as_view(), name="api-event-documents"),
    path("v1/events/<str:event_id>/approvals/", approvals.EventApprovals.as_view(), name="api-event-approvals"),
    path("v1/approvals/<int:approval_id>/", approvals.Approval.as_view(), name="api-approval"),
    path("v1/approvals/<int:approval_id>/consents/", approvals.Consents.as_view(), name="api-approval-consents"),
    path("v1/events/<str:event_id>/claims/", claims.EventClaims.as_view(), name="api-event-claims"),
    path("v1/events/<str:event_id>/holds/", claims.EventHolds.as_view(), name="api-event-holds"),
    path("v1/bulk/approvals/", bulk.BulkApprovals.as_view(), name="api-bulk-approvals"),
    path("v1/bulk/claims/", bulk.BulkClaims.as_view(), name="api-bulk-claims"),
    path("v1/caches/", caches.Caches.as_view(), name="api-caches"),
    path("v1/caches/<int:cache_id>/", caches.Cache.as_view(), name="api-cache"),
    path("v1/maintenances/", caches.Maintenances.as_view(), name="api-maintenances"),
    path("v1/maintenances/<int:maintenance_id>/", caches.Maintenance.as_view(), name="api-maintenance"),
    path("v1/notifications/", caches.Notifications.as_view(), name="api-notifications"),
    path("v1/audit/", audit.Audit.as_view(), name="api-audit"),
    path("v1/audit/export.csv", audit.AuditCsv.as_view(), name="api-audit-csv"),
    path("v1/audit/export.jsonl", audit.AuditJsonLines.as_view(), name="api-audit-jsonl"),
    path("v1/me/", people.Me.as_view(), name="api-me"),
    path("v1/tokens/", people.Tokens.as_view(), name="api-tokens"),
    path("v1/tokens/<str:prefix>/", people.Token.as_view(), name="api-token"),
    path("v1/people/", people.People.as_view(), name="api-people"),
    path("v1/people/<str:username>/", people.Person.as_view(), name="api-person"),
    path("v1/people/<str:username>/password/", people.PersonPassword.as_view(), name="api-person-password"),
]
