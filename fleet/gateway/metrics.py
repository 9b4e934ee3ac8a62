"""What one process counts of itself, for Prometheus. Numbers of the fleet come from the database when scraped."""

from prometheus_client import Counter, Gauge, Histogram

REPORTS = Counter("drydock_reports", "Reports committed, those that were repeats included.")
REFUSED = Counter("drydock_reports_refused", "Reports that were refused for good.")
COMMITS = Histogram(
    "drydock_commit_seconds", "Time of one group commit.", buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
)
COMMIT_REPORTS = Histogram(
    "drydock_commit_reports", "Reports in one group commit.", buckets=(1, 3, 10, 30, 100, 300, 1000, 3000)
)
SHED = Counter("drydock_shed", "Requests sent away, by why.", ["why"])
# A counter that begins with its first trouble has not grown, to Prometheus: so these begin at 0.
for _why in ("queue", "slow", "pages"):
    SHED.labels(_why)
ENROLMENTS_REFUSED = Counter(
    "drydock_enrolments_refused", "Enrolments that were refused, by the code of the problem.", ["code"]
)
for _code in ("attestation-refused", "join-token-refused", "admissions-full", "validation", "not-permitted"):
    ENROLMENTS_REFUSED.labels(_code)
DELIVERED = Counter("drydock_orders_handed_out", "Orders put into an answer, by the path that brought them.", ["via"])
HELD = Gauge("drydock_held_calls", "Calls for orders that are held open.")
STREAMS = Gauge("drydock_streams", "Streams to browsers.")
REQUESTS = Counter(
    "drydock_http_requests",
    "Requests by route, method and class of status, such as `2xx`; `none` where the client went away first.",
    ["route", "method", "status"],
)
REQUEST_SECONDS = Histogram(
    "drydock_http_request_seconds",
    "Time of a request up to the end of its answer; held calls and streams are open for long.",
    ["route", "method"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
