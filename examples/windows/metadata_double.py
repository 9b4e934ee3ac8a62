"""Stands for Azure's metadata service in Test-DrydockAgent.ps1: `python metadata_double.py FOLDER PORT`.

It answers on loopback only, with the instance metadata of one machine. The scheduled events are those in the file
`events.json` of the folder, which the test changes.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

FOLDER = Path(sys.argv[1])
COMPUTE = {"vmId": "5ae706df-54e6-5d67-960f-2d30303bc837", "name": "acceptance", "osType": "Windows"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = urlsplit(self.path).path.rstrip("/")
        if path == "/metadata/instance":
            self.answer({"compute": COMPUTE})
        elif path == "/metadata/instance/compute":
            self.answer(COMPUTE)
        elif path == "/metadata/scheduledevents":
            # Written by PowerShell, perhaps with a byte order mark.
            self.answer(json.loads((FOLDER / "events.json").read_text("utf-8-sig")))
        else:
            self.send_error(404)

    def answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
