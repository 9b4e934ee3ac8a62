"""The Drydock agent: it watches what Azure announces to one machine and carries approvals back to Azure.

Packages and shared modules. Each imports only from itself and from the ones listed above it. So hooks and drills import
no client of the metadata service, and only `supervisor` and `check` import everything.

    wire                wire format shared with the backend; standard library only
    clock               the machine's time, the backend's time, and times as text
    backoff             how long to wait after a failure
    version             which release this is
    lazy_import         modules that are imported when they are first used
    log_limiter         warnings that do not fill a disk
    small_http_client   `requests` without what it costs elsewhere
    connections         HTTP calls that another thread can cut
    logs                log lines as text or as JSON
    settings            environment, TOML file, defaults
    spool               reports on disk until the backend acknowledges them
    state_folder        files next to the spool: credential, keys, machine id
    context             objects shared by the parts of one run
    drills              rehearsals, which never reach Azure
    hooks               hook programs: folder, processes and progress
    metadata_service    Azure's Instance Metadata Service: discovery, client, scheduled events
    machine             identity of this machine
    redis               maintenance channel of caches; imported only if a cache is configured
    backend             enrolment, sending reports, receiving orders
    supervisor          runs each part in its own thread
    check               connectivity check in plain sentences
    loop                `run` and `once`
    __main__            the command
"""
