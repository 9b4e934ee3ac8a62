BEGIN TRANSACTION;
CREATE TABLE kept_apart (
    id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL,
    data TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('instance','33464f1f84b52a880d7bc53f42dbfe10aa241a38ddfef33728bd106ebf4ac763');
INSERT INTO "meta" VALUES('events_version','2020-07-01');
INSERT INTO "meta" VALUES('hooks','{"resource_name": "web-vm1", "events": {"a123bc45-1234-5678-ab90-abcdef123456": {"event": {"EventId": "A123BC45-1234-5678-AB90-ABCDEF123456", "EventStatus": "Started", "EventType": "Reboot", "ResourceType": "VirtualMachine", "Resources": ["web-vm1"], "NotBefore": "", "Description": "Host server is undergoing maintenance.", "EventSource": "Platform", "DurationInSeconds": -1}, "phase": "prepare", "late": false, "ended": true, "prepared": "succeeded", "done": {"10-drain": "succeeded"}, "running": "", "run": "95af2c89b31d43a693bb5945a66ceb2c", "boot": "094a7aea-dd58-4c99-8d76-8cf95ec54e1f", "interrupted": []}}}');
INSERT INTO "meta" VALUES('acknowledged','8');
INSERT INTO "meta" VALUES('spool','344a7823-880c-406a-b784-96b5fdd486b7');
INSERT INTO "meta" VALUES('machine_id','00000000-0000-4000-8000-000000000001');
INSERT INTO "meta" VALUES('newest','{"sameness": "5e8f048ca053afa0ab3c71b6b3e3edb57bb7b41f2f60df125035bb875f754b34", "hash": "344d34256ae82469ab1072fd8694341fdea1c1b5b314d3ef01e287e512128e78", "incarnation": 3, "listed": {"a123bc45-1234-5678-ab90-abcdef123456": "A123BC45-1234-5678-AB90-ABCDEF123456", "b123bc45-1234-5678-ab90-abcdef123456": "B123BC45-1234-5678-AB90-ABCDEF123456"}, "started": ["a123bc45-1234-5678-ab90-abcdef123456"], "at": "2026-11-22T07:18:23.574140Z"}');
INSERT INTO "meta" VALUES('redis shop.redis.cache.windows.net','{"state": "subscribed", "alive": "2026-11-22T07:18:24.174262Z"}');
CREATE TABLE orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL, attempted_at TEXT,
    receipt TEXT, receipt_seq INTEGER);
INSERT INTO "orders" VALUES(1,'order-1','{"id": "order-1", "machine_id": "00000000-0000-4000-8000-000000000001", "event_id": "A123BC45-1234-5678-AB90-ABCDEF123456", "issued_at": "2026-11-22T07:18:20.184075Z", "expires_at": "2058-07-31T09:05:00.184116Z", "via": "celery", "signatures": [], "drill": null}','2026-11-22T07:18:20.186349Z','{"order_id": "order-1", "event_id": "A123BC45-1234-5678-AB90-ABCDEF123456", "outcome": "answered", "azure_status": 200, "azure_body": "", "reason": "", "attempted_at": "2026-11-22T07:18:20.186349Z", "via": "celery"}',7);
CREATE TABLE reports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, at TEXT NOT NULL, data TEXT NOT NULL);
INSERT INTO "reports" VALUES(9,'document','2026-11-22T07:18:23.574140Z','{"body": "{\"DocumentIncarnation\":3,\"Events\":[{\"EventId\":\"A123BC45-1234-5678-AB90-ABCDEF123456\",\"EventStatus\":\"Started\",\"EventType\":\"Reboot\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[\"web-vm1\"],\"NotBefore\":\"\",\"Description\":\"Host server is undergoing maintenance.\",\"EventSource\":\"Platform\",\"DurationInSeconds\":-1},{\"EventId\":\"B123BC45-1234-5678-AB90-ABCDEF123456\",\"EventStatus\":\"Scheduled\",\"EventType\":\"Freeze\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[\"web-vm2\"],\"NotBefore\":\"Sun, 22 Nov 2026 07:28:24 GMT\",\"Description\":\"Virtual machine is being paused because of a memory-preserving Live Migration operation.\",\"EventSource\":\"Platform\",\"DurationInSeconds\":5}]}", "hash": "344d34256ae82469ab1072fd8694341fdea1c1b5b314d3ef01e287e512128e78", "incarnation": 3, "encoding": "utf-8", "api_version": "2020-07-01"}');
INSERT INTO "reports" VALUES(10,'coverage','2026-11-22T07:18:20.161311Z','{"cache": "shop.redis.cache.windows.net", "state": "lost", "reason": "the agent ended without a word", "tier": "premium", "divisor": 2}');
INSERT INTO "reports" VALUES(11,'coverage','2026-11-22T07:18:24.174262Z','{"cache": "shop.redis.cache.windows.net", "state": "subscribed", "reason": "", "tier": "premium", "divisor": 2}');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('reports',11);
INSERT INTO "sqlite_sequence" VALUES('orders',2);
COMMIT;
