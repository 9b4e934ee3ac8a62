"""The Drydock agent: it watches what Azure announces to one machine and carries approvals back to Azure.

Its rooms, and the modules that serve several of them. Each imports only from itself and from what stands above it; so
hooks and drills know no client of the metadata service, and nothing but `crew` and `check` knows all.

    wire                the shapes that the backend knows, too; standard library only
    clock               the machine's time, the backend's time, and times as text
    backoff             how long to wait after a failure
    version             which release this is
    lazy_import         modules that are imported when they are first used
    log_limiter         warnings that do not fill a disk
    small_http_client   `requests` without what it costs elsewhere
    connections         HTTP calls that another thread can cut
    logs                lines for people, or as JSON
    settings            environment, TOML file, defaults
    spool               what waits on the disk until the backend has it
    state_folder        the files beside the spool: credential, keys, the machine's id
    context             what nearly every part of one run shares
    drills              rehearsals, which never reach Azure
    hooks               programs of the machine's owner: their folder, processes and progress
    metadata_service    Azure's Instance Metadata Service: where it is, how it is asked, what it announces
    machine             which machine this is
    redis               the maintenance channel of caches; imported only where one is configured
    backend             enrolment, reports out, orders in
    crew                all parts put together, each with its thread
    check               what can be reached from here, in plain words
    loop                `run` and `once`
    __main__            the command
"""
