"""The agent as a service of a machine with doubles of Windows. Controls come on standard input, one a line; each state
that the service reports goes to standard output.
"""

import os
import sys
import threading
import time

from tests.agent.windows import doubles


def main() -> None:
    machine = doubles.pretend()
    machine.services["DrydockAgent"] = {}
    from drydock_agent import windows_service  # noqa: PLC0415 - after the doubles

    windows_service.PENDING_SECONDS = 0.1
    windows_service.host()
    service = machine.hosted(["DrydockAgent"])
    controls = {"stop": 1, "interrogate": 4, "preshutdown": 15}

    def listen() -> None:
        for line in sys.stdin:
            service.ServiceCtrlHandlerEx(controls[line.strip()], 0, None)

    threading.Thread(target=listen, daemon=True).start()
    begun = time.monotonic()
    status = 0
    try:
        service.SvcRun()
    except Exception:  # noqa: BLE001 - what the host of pywin32 does
        status = 1
    for state, hint in machine.statuses:
        print("status", state, hint)  # noqa: T201
    for kind, text in machine.events:
        print("event", kind, text.splitlines()[0])  # noqa: T201
    print("preshutdown", machine.services["DrydockAgent"].get(7))  # noqa: T201
    print("accepted", service.GetAcceptedControls(), f"{time.monotonic() - begun:.1f}")  # noqa: T201
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
