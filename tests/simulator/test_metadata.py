"""Metadata of an instance and attested documents, held against Microsoft's pages and samples."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from azure_simulator import attestation
from cryptography import x509

from tests.simulator.asking import START, Answer, Simulated, simulated, west_norway

ATTESTED_SAMPLE = Path(__file__).parent.parent / "samples" / "attested_document.json"

SEQUENCE, SET, OID, OCTETS, TAGGED = 0x30, 0x31, 0x06, 0x04, 0xA0


@pytest.fixture(scope="module")
def azure() -> Any:
    """One for all: its keys take a moment to be made."""
    with simulated() as running:
        yield running


def attested(azure: Simulated, vm: str = "WestNO_0", query: str = "", version: str = "2025-04-07") -> Answer:
    return azure.get(vm, f"/metadata/attested/document?api-version={version}{query}")


def parts(der: bytes) -> list[tuple[int, bytes]]:
    """Return the sibling elements in `der`: tag and content."""
    found = []
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        found.append((tag, der[start : start + length]))
        der = der[start + length :]
    return found


class Signed:
    """A PKCS #7 taken apart, in the form of the page's sample."""

    def __init__(self, answer: Any) -> None:
        assert answer["encoding"] == "pkcs7" and set(answer) == {"encoding", "signature"}
        [(_, whole)] = parts(base64.b64decode(answer["signature"], validate=True))
        (_, self.kind), (_, tagged) = parts(whole)
        [(_, data)] = parts(tagged)
        (_, self.version), (_, self.digests), (_, held), (_, certificate), (_, signers) = parts(data)
        (_, self.content_kind), (_, octets) = parts(held)
        [(_, self.content)] = parts(octets)
        self.certificate_der = certificate
        [(_, signer)] = parts(signers)
        self.signer = parts(signer)

    @property
    def document(self) -> Any:
        return json.loads(self.content)

    @property
    def form(self) -> Any:
        """Everything but what differs from machine to machine."""
        _, issuer, digest, algorithm, signature = self.signer
        tags = [tag for tag, _ in parts(issuer[1])]
        return self.kind, self.version, self.digests, self.content_kind, tags, digest, algorithm, signature[0]

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_der_x509_certificate(self.certificate_der)


def test_it_has_the_form_of_microsofts_sample(azure: Simulated) -> None:
    sample = Signed(json.loads(ATTESTED_SAMPLE.read_text(encoding="utf-8"))["response"])
    ours = Signed(attested(azure, version="2018-10-01", query="&nonce=1234566766").json)
    assert ours.form == sample.form
    assert list(ours.document) == list(sample.document) == ["nonce", "plan", "timeStamp", "vmId"]
    assert ours.document["plan"] == sample.document["plan"]
    assert ours.document["nonce"] == sample.document["nonce"]


def test_it_says_which_machine_of_which_subscription_and_until_when(azure: Simulated) -> None:
    assert Signed(attested(azure, query="&nonce=0123456789").json).document == {
        "nonce": "0123456789",
        "plan": {"name": "", "product": "", "publisher": ""},
        "timeStamp": {"createdOn": "04/11/22 22:11:58 -0000", "expiresOn": "04/12/22 04:11:58 -0000"},
        "vmId": "WestNO_0-vm-id",
        "subscriptionId": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90",
        "sku": "12-gen2",
    }


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2018-10-01", set()),
        ("2019-03-11", set()),
        ("2019-04-30", {"subscriptionId"}),
        ("2019-11-01", {"subscriptionId", "sku"}),
        ("2025-04-07", {"subscriptionId", "sku"}),
    ],
)
def test_each_version_has_the_fields_of_its_time(azure: Simulated, version: str, more: set[str]) -> None:
    assert set(Signed(attested(azure, version=version).json).document) == {"nonce", "plan", "timeStamp", "vmId"} | more


@pytest.mark.parametrize("version", ["2017-12-01", "2018-04-02", "2019-01-01", "2031-01-01", ""])
def test_versions_before_the_first_and_unknown_ones_are_400(azure: Simulated, version: str) -> None:
    answer = attested(azure, version=version)
    assert (answer.status, answer.json["newest-versions"]) == (400, ["2025-04-07", "2024-07-17", "2024-03-15"])


def test_without_a_nonce_it_is_the_time(azure: Simulated) -> None:
    for query in ("", "&nonce="):
        assert Signed(attested(azure, query=query).json).document["nonce"] == "20220411-221158"


@pytest.mark.parametrize("nonce", ["1", "0123456789", "abcde12345", "A" * 32])
def test_a_nonce_of_up_to_32_letters_and_digits_comes_back(azure: Simulated, nonce: str) -> None:
    assert Signed(attested(azure, query=f"&nonce={nonce}").json).document["nonce"] == nonce
    for odd in ("A" * 33, "two%20words", "%22", "n%C3%A9", "1%0A"):
        answer = attested(azure, query=f"&nonce={odd}")
        assert answer.status == 400 and "nonce" in answer.json["error"]


def test_each_machine_is_vouched_for_and_a_classic_one_has_an_id_here_and_no_compute_metadata() -> None:
    whole = west_norway()
    del whole["sets"][1]["machines"][0]["vm_id"]
    with simulated(whole) as azure:
        ids = [Signed(attested(azure, vm).json).document["vmId"] for vm in ("WestNO_0", "WestNO_1", "FrontEnd_IN_0")]
        assert list(instance(azure, "FrontEnd_IN_0").json) == ["network"]
        assert instance(azure, "FrontEnd_IN_0", "/compute").status == 404
    assert ids[:2] == ["WestNO_0-vm-id", "WestNO_1-vm-id"] and len(ids[2]) == 36


def test_a_leaf_is_renewed_however_the_clock_is_moved() -> None:
    with simulated() as azure:
        serials = set()
        for days in (0, 30, 200, -300):
            azure.clock.advance(days * 86400)
            leaf = Signed(attested(azure).json).leaf
            assert leaf.not_valid_before_utc < azure.clock.now() < leaf.not_valid_after_utc
            serials.add(leaf.serial_number)
    assert len(serials) == 3, "the one of the first day did for the thirtieth"


def test_without_the_library_only_this_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure_simulator.attestation_chain", None)
    with pytest.raises(attestation.UnavailableError, match="cryptography"):
        attestation.Authority().shown(START)
    with simulated() as azure:
        assert azure.get("WestNO_0").status == 200
        assert attested(azure).status == azure.control("GET", "authority").status == 503


INSTANCE_VERSION = "api-version=2021-02-01"

INSTANCE_SAMPLE = Path(__file__).parents[1] / "samples" / "instance_compute.json"


def instance(azure: Simulated, vm: str, path: str = "", query: str = "") -> Answer:
    return azure.get(vm, f"/metadata/instance{path}?{INSTANCE_VERSION}{query}")


def test_instance_document_has_identity_and_location(azure: Simulated) -> None:
    compute = instance(azure, "WestNO_1").json["compute"]
    wanted: dict[str, Any] = {"name": "WestNO_1", "vmId": "WestNO_1-vm-id", "location": "norwaywest", "zone": ""}
    wanted |= {"resourceGroupName": "west", "subscriptionId": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90"}
    wanted |= {"platformFaultDomain": "1", "platformUpdateDomain": "0", "placementGroupId": "", "vmScaleSetName": ""}
    wanted |= {"vmSize": "Standard_D2s_v5", "osType": "Linux"}
    wanted["tagsList"] = [{"name": "drydock:service", "value": "west"}]
    assert {name: compute[name] for name in wanted} == wanted
    assert compute["osProfile"]["computerName"] == "WestNO_1"


def test_all_values_are_text(azure: Simulated) -> None:
    def texts(part: Any) -> bool:
        if isinstance(part, dict | list):
            return all(texts(item) for item in (part.values() if isinstance(part, dict) else part))
        return isinstance(part, str)

    assert texts(instance(azure, "workers_0").json)


def test_a_scale_set_machine_knows_its_scale_set_and_has_another_host_name(azure: Simulated) -> None:
    compute = instance(azure, "workers_0", "/compute").json
    assert compute["vmScaleSetName"] == "workers"
    assert compute["placementGroupId"]
    assert compute["name"] == "workers_0"
    assert compute["osProfile"]["computerName"] == "workers000000"


def test_the_availability_set_is_not_in_it() -> None:
    whole = west_norway()
    whole["sets"][0]["name"] = "a-name-that-stands-nowhere-else"
    with simulated(whole) as renamed:
        assert b"a-name-that-stands-nowhere-else" not in instance(renamed, "WestNO_0").body


def test_a_leaf_is_to_be_had_as_text_only(azure: Simulated) -> None:
    leaf = instance(azure, "workers_0", "/compute/name", "&format=text")
    assert (leaf.status, leaf.body, leaf.headers["content-type"]) == (200, b"workers_0", "text/plain; charset=utf-8")
    assert instance(azure, "workers_0", "/compute/name").status == 400
    assert instance(azure, "workers_0", "/compute/tagsList/0/value", "&format=text").body == b"west"
    # A branch as text lists its names.
    assert instance(azure, "workers_0", "", "&format=text").body == b"compute/\nnetwork/"
    assert b"osProfile/\nosType\n" in instance(azure, "workers_0", "/compute", "&format=text").body


@pytest.mark.parametrize("path", ["/nothing", "/compute/nothing", "/compute/name/deeper", "/compute/tagsList/9"])
def test_what_is_not_there_is_404(azure: Simulated, path: str) -> None:
    assert instance(azure, "workers_0", path, "&format=text").status == 404


# "Supported API versions" on Microsoft's page of 04/11/2023.
SUPPORTED = [
    "2025-04-07", "2024-07-17", "2024-03-15", "2023-11-15", "2023-07-01", "2021-12-13", "2021-11-15", "2021-11-01",
    "2021-10-01", "2021-08-01", "2021-05-01", "2021-03-01", "2021-02-01", "2021-01-01", "2020-12-01", "2020-10-01",
    "2020-09-01", "2020-07-15", "2020-06-01", "2019-11-01", "2019-08-15", "2019-08-01", "2019-06-04", "2019-06-01",
    "2019-04-30", "2019-03-11", "2019-02-01", "2018-10-01", "2018-04-02", "2018-02-01", "2017-12-01", "2017-10-01",
    "2017-08-01", "2017-04-02", "2017-03-01",
]  # fmt: skip


def test_every_documented_version_is_answered_and_no_other(azure: Simulated) -> None:
    assert azure.get("WestNO_0", "/metadata/versions").json["apiVersions"] == SUPPORTED[::-1]
    for version in SUPPORTED:
        assert azure.get("WestNO_0", f"/metadata/instance?api-version={version}").status == 200
    for version in ("2021-08-02", "2024-01-01", "2026-01-01", "2021-8-1"):
        assert azure.get("WestNO_0", f"/metadata/instance?api-version={version}").status == 400


@pytest.mark.parametrize(
    ("path", "since", "before"),
    [
        ("compute/vmScaleSetName", "2017-12-01", "2017-10-01"),
        ("compute/resourceId", "2019-03-11", "2019-02-01"),
        ("compute/storageProfile", "2019-06-01", "2019-04-30"),
        ("compute/tagsList", "2019-06-04", "2019-06-01"),
        ("compute/osProfile/disablePasswordAuthentication", "2020-10-01", "2020-09-01"),
        ("compute/storageProfile/resourceDisk/size", "2021-02-01", "2021-01-01"),
        ("compute/hostGroup/id", "2021-11-15", "2021-11-01"),
        ("compute/securityProfile/securityType", "2021-12-13", "2021-11-15"),
        ("compute/storageProfile/imageReference/exactVersion", "2023-07-01", "2021-12-13"),
        ("compute/physicalZone", "2023-11-15", "2023-07-01"),
    ],
)
def test_a_field_is_there_since_its_version(azure: Simulated, path: str, since: str, before: str) -> None:
    def status(version: str) -> int:
        return azure.get("WestNO_0", f"/metadata/instance/{path}?api-version={version}&format=text").status

    assert (status(since), status(SUPPORTED[0]), status(before)) == (200, 200, 404)


def test_every_name_of_microsofts_sample_is_in_it(azure: Simulated) -> None:
    def missing(wanted: Any, found: Any) -> set[str]:
        if not isinstance(wanted, dict):
            return set()
        # The page writes one of them with a capital letter, and with a small one elsewhere.
        names = {name.lower(): part for name, part in found.items()}
        lacking = {name for name in wanted if name.lower() not in names}
        return lacking.union(*(missing(wanted[name], names[name.lower()]) for name in set(wanted) - lacking))

    sample = json.loads(INSTANCE_SAMPLE.read_text(encoding="utf-8"))
    ours = azure.get("WestNO_0", f"/metadata/instance/compute?api-version={sample['api_version']}").json
    assert missing(sample["compute"], ours) == set()


def test_the_disks_are_in_it_as_text(azure: Simulated) -> None:
    storage = instance(azure, "WestNO_0", "/compute/storageProfile").json
    assert set(storage) == {"dataDisks", "imageReference", "osDisk", "resourceDisk"}
    assert storage["osDisk"]["diskSizeGB"] == "30" and storage["osDisk"]["writeAcceleratorEnabled"] == "false"
    assert storage["osDisk"]["managedDisk"]["id"].endswith("/disks/WestNO_0_OsDisk")


def test_machine_behind_a_load_balancer_gets_its_rules() -> None:
    whole = west_norway()
    whole["sets"][0]["load_balancer"] = {"address": "51.0.0.1", "ports": {"80": 443}}
    with simulated(whole) as azure:
        [interface] = instance(azure, "WestNO_0", "/network").json["interface"]
        private = interface["ipv4"]["ipAddress"][0]["privateIpAddress"]
        ends = {"frontendIpAddress": "51.0.0.1", "privateIpAddress": private}
        rule = {**ends, "protocol": "tcp", "frontendPort": 80, "backendPort": 443}
        assert azure.get("WestNO_0", "/metadata/loadbalancer?api-version=2020-10-01").json == {
            "loadbalancer": {"publicIpAddresses": [], "inboundRules": [rule], "outboundRules": [ends]}
        }
        others = azure.get("workers_0", "/metadata/loadbalancer?api-version=2020-10-01")
        assert others.status == 404 and "No load balancer metadata is found" in others.json["error"]


@pytest.mark.parametrize("status", [404, 500])
def test_it_can_fail_while_scheduled_events_are_answered(azure: Simulated, status: int) -> None:
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": f"instance-{status}", "count": 1})
    assert instance(azure, "WestNO_0").status == status
    assert instance(azure, "WestNO_0").status == 200
