"""The Drydock agent: it reports the scheduled events of one machine to the backend, and sends approvals to Azure.

The packages and shared modules are listed below. Each imports only modules that are listed above it. Hooks and drills
therefore import no client of the metadata service, and only `supervisor` and `check` import everything.

    wire                wire format shared with the backend; standard library only
    lazy_import         imports of modules at first use
    platforms           the operating system: POSIX or Windows
    clock               the machine's time, the backend's time, and times as text
    backoff             waits after failures
    version             version of the agent
    service_manager     messages to systemd or Windows
    log_limiter         limit for repeated warnings
    small_http_client   `requests` with less memory
    connections         HTTP calls that another thread can abort
    logs                log lines as text or as JSON
    settings            environment, TOML file, defaults
    spool               reports on disk until the backend acknowledges them
    state_folder        files next to the spool: credential, keys, machine id
    context             objects shared by the parts of one run
    drills              drills, which never reach Azure
    hooks               hook programs: folder, processes and progress
    metadata_service    Azure's Instance Metadata Service: discovery, client, scheduled events
    machine             identity of this machine
    redis               maintenance cache notifications; imported only if a cache is configured
    backend             enrolment, sending reports, receiving orders
    supervisor          runs each part in its own thread
    check               connectivity check in plain sentences
    loop                `run` and `once`
    windows_service     the service of Windows
    windows_main        the program of that service
    __main__            the command
"""
