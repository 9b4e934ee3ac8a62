"""Third-party programs: they run unmodified against the simulator, at the address that they have built in."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.namespaces import Namespace, missing
from tests.processes import running, wait_for
from tests.simulator.asking import west_norway

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]

ADDRESS = "169.254.169.254"
MACHINE = "WestNO_0"
# One call from within: what a program on the machine would do, with the standard library alone.
CALL = """
import base64, sys, urllib.request
method, url, body = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode() or None, headers={"Metadata": "true"}, method=method)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(base64.b64encode(opener.open(request, timeout=30).read()).decode())
"""
HERE = Path(__file__).parent
# Another version of the cluster's handlers than Debian's is played where this names its root.
OCF = Path(os.environ.get("OCF_ROOT", "/usr/lib/ocf"))
EVENTS_AZ = OCF / "resource.d" / "heartbeat" / "azure-events-az"

DETECT = """
import json
from opentelemetry.resource.detector.azure.vm import AzureVMResourceDetector
print(json.dumps(dict(AzureVMResourceDetector().detect().attributes)))
"""

SYSTEM_PYTHON = Path("/usr/bin/python3")
CLOUD_INIT = Path("/usr/lib/python3/dist-packages/cloudinit/sources/DataSourceAzure.py")
# What it does when a machine starts; which version it wants has changed, and its way of asking with it.
CRAWL = """
import json
from cloudinit import distros, helpers
from cloudinit.sources import DataSourceAzure as azure
source = azure.DataSourceAzure({}, distros.fetch("debian")("debian", {}, None), helpers.Paths({}))
if hasattr(source, "get_imds_data_with_api_fallback"):
    found = source.get_imds_data_with_api_fallback(retries=0)
else:
    found = source.get_metadata_from_imds(report_failure=False)
source.validate_imds_network_metadata(found)
print(json.dumps({
    "found": found,
    "user": azure._username_from_imds(found),
    "host": azure._hostname_from_imds(found),
    "no password": azure._disable_password_from_imds(found),
}))
"""


class OnAzure:
    """A machine at Azure: programs run on it unmodified, and `control` plays Azure."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def call(self, method: str, url: str, body: str = "") -> bytes:
        return base64.b64decode(self.namespace.run(sys.executable, "-c", CALL, method, url, body, env=environment()))

    def control(self, method: str, call: str, body: Any = None) -> Any:
        """One control call, as in the simulator's documentation; the decoded answer."""
        return json.loads(self.call(method, f"http://{ADDRESS}/control/{call}", json.dumps(body) if body else ""))

    def create(self, **fields: Any) -> str:
        """Announce an event of the machine's set; its EventId."""
        return str(self.control("POST", "events", {"set": "west", "resources": [MACHINE], **fields})["EventId"])

    def event(self, event_id: str) -> Any:
        return self.control("GET", f"events/{event_id}")

    def posts(self) -> Any:
        return self.control("GET", "log?method=POST")


def environment(**more: str) -> dict[str, str]:
    """Ours without any proxy: the programs of others would honour it."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **more}


@pytest.fixture
def on_azure(tmp_path: Path) -> Iterator[OnAzure]:
    """Microsoft's sample machine WestNO_0, alone in a namespace with its metadata service."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps(west_norway()), encoding="utf-8")
    with Namespace(f"{ADDRESS}/32") as namespace:
        command = [sys.executable, "-m", "azure_simulator", "--fleet", str(fleet), "--as-vm", MACHINE]
        command += ["--listen", f"{ADDRESS}:80"]
        with running(namespace.command(*command), environment={}, log=tmp_path / "simulator.log") as simulator:
            wait_for(lambda: "listening on" in simulator.said(), seconds=20, what="the simulator listens")
            yield OnAzure(namespace)


class Cluster:
    """A node of a cluster that does not run: attributes in files, and the resource agent that the cluster would run."""

    def __init__(self, on_azure: OnAzure, folder: Path) -> None:
        self.on_azure = on_azure
        self.folder = folder
        self.node = socket.gethostname()
        folder.mkdir()
        (folder / "nodes").write_text(f"{self.node}\nanother-node\n")

    def monitor(self) -> None:
        """What the cluster does every ten seconds."""
        path = f"{HERE / 'cluster'}{os.pathsep}{os.environ['PATH']}"
        names = {"OCF_ROOT": str(OCF), "OCF_RESKEY_eventTypes": "Reboot,Redeploy", "CLUSTER": str(self.folder)}
        self.on_azure.namespace.run(str(EVENTS_AZ), "monitor", env=environment(PATH=path, **names))

    def attribute(self, name: str, node: str = "") -> str:
        file = self.folder / (node or self.node) / name
        return file.read_text().strip() if file.exists() else ""

    @property
    def state(self) -> str:
        return self.attribute("azure-events-az_curNodeState") or "AVAILABLE"


@pytest.fixture
def cluster(on_azure: OnAzure, tmp_path: Path) -> Iterator[Cluster]:
    if not EVENTS_AZ.exists():
        pytest.skip(f"no {EVENTS_AZ} here (Debian: resource-agents)")
    yield Cluster(on_azure, tmp_path / "cluster")


def test_a_clusters_resource_agent_takes_a_node_out_lets_azure_begin_and_brings_it_back(cluster: Cluster) -> None:
    on_azure = cluster.on_azure
    cluster.monitor()
    assert cluster.state == "AVAILABLE"
    assert cluster.attribute(f"hostName_{MACHINE}", "cluster") == cluster.node, "it knows who it is"

    event_id = on_azure.create(type="Reboot")
    cluster.monitor()
    assert (cluster.state, cluster.attribute("#health-azure")) == ("STOPPING", "-1000000")
    assert on_azure.event(event_id)["status"] == "Scheduled", "not before the node is empty"

    cluster.monitor()
    assert (cluster.state, cluster.attribute("azure-events-az_pendingEventIDs")) == ("IN_EVENT", event_id)
    [post] = on_azure.posts()
    assert (json.loads(post["body"]), post["status"]) == ({"StartRequests": [{"EventId": event_id}]}, 200)
    event = on_azure.event(event_id)
    assert (event["status"], event["started_by"]) == ("Started", "approval")

    cluster.monitor()
    assert cluster.state == "IN_EVENT", "not back to work in the middle of the reboot"

    on_azure.control("POST", f"events/{event_id}/complete")
    cluster.monitor()
    assert (cluster.state, cluster.attribute("#health-azure")) == ("AVAILABLE", "0")
    assert len(on_azure.posts()) == 1


def test_it_approves_nothing_while_resources_still_move(cluster: Cluster) -> None:
    on_azure = cluster.on_azure
    moving = cluster.folder / "operations"
    moving.write_text(f"rsc_db (ocf:heartbeat:pgsql): Stopped: rsc_db_stop_0 (node={cluster.node}, rc=193): pending\n")
    event_id = on_azure.create(type="Reboot")
    for _ in range(3):
        cluster.monitor()
    assert (cluster.state, on_azure.posts()) == ("STOPPING", [])
    moving.unlink()
    cluster.monitor()
    assert (cluster.attribute("#health-azure"), on_azure.posts()) == ("-1000000", []), "first it empties the node"
    cluster.monitor()
    assert cluster.state == "IN_EVENT"
    assert on_azure.event(event_id)["started_by"] == "approval"


def test_it_leaves_alone_what_it_was_not_told_to_handle(cluster: Cluster) -> None:
    cluster.on_azure.create(type="Freeze")
    cluster.on_azure.create(type="Reboot", resources=["WestNO_1"])
    for _ in range(2):
        cluster.monitor()
    assert cluster.state == "AVAILABLE"
    assert cluster.on_azure.posts() == []


def test_a_telemetry_detector_learns_who_the_machine_is(on_azure: OnAzure) -> None:
    for _ in range(5):
        # It gives the service a fifth of a second, which a busy machine may need for itself.
        found = json.loads(on_azure.namespace.run(sys.executable, "-c", DETECT, env=environment()))
        if found:
            break
    expected = {
        "cloud.provider": "azure",
        "cloud.region": "norwaywest",
        "host.id": "WestNO_0-vm-id",
        "os.type": "Linux",
    }
    expected |= {"host.name": MACHINE, "host.type": "Standard_D2s_v5", "azure.vm.scaleset.name": ""}
    assert {name: found[name] for name in expected} == expected
    assert found["cloud.resource_id"].endswith(f"/providers/Microsoft.Compute/virtualMachines/{MACHINE}")


def test_cloud_init_learns_what_it_sets_up(on_azure: OnAzure) -> None:
    if not CLOUD_INIT.exists():
        pytest.skip(f"no {CLOUD_INIT} here (Debian: cloud-init)")
    said = json.loads(on_azure.namespace.run(str(SYSTEM_PYTHON), "-c", CRAWL, env=environment()))
    assert (said["user"], said["host"], said["no password"]) == ("azureuser", MACHINE, True)
    assert said["found"]["compute"]["storageProfile"]["osDisk"]["name"] == f"{MACHINE}_OsDisk"
    assert said["found"]["network"]["interface"][0]["macAddress"].startswith("000D3A")
    asked = [each for each in on_azure.control("GET", "log") if each["path"].startswith("/metadata/instance")]
    assert [each["status"] for each in asked] == [200], "the version that it wants, at the first go"


def test_openssl_verifies_an_attested_document_as_the_page_does(on_azure: OnAzure, tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl here (Debian: openssl)")

    def openssl(*words: str) -> str:
        return subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    url = "http://169.254.169.254/metadata/attested/document?api-version=2025-04-07&nonce=0123456789"
    (tmp_path / "signature").write_bytes(base64.b64decode(json.loads(on_azure.call("GET", url))["signature"]))
    (tmp_path / "root.pem").write_text(on_azure.control("GET", "authority")["root"])
    openssl("pkcs7", "-in", "signature", "-inform", "DER", "-print_certs", "-out", "signer.pem")
    [issuer] = re.findall(r"CA Issuers - URI:(\S+)", openssl("x509", "-in", "signer.pem", "-text", "-noout"))
    (tmp_path / "intermediate.cer").write_bytes(on_azure.call("GET", issuer))
    openssl("x509", "-inform", "der", "-in", "intermediate.cer", "-out", "intermediate.pem")
    chain = ["-CAfile", "root.pem", "-untrusted", "intermediate.pem", "-purpose", "sslserver"]
    assert "signer.pem: OK" in openssl("verify", *chain, "signer.pem")
    shown = openssl("x509", "-noout", "-subject", "-in", "signer.pem")
    assert shown.strip().endswith("norwaywest.metadata.azure.com")
    content = openssl("smime", "-verify", "-in", "signature", "-inform", "DER", "-noverify")
    assert json.loads(content)["vmId"] == "WestNO_0-vm-id"
