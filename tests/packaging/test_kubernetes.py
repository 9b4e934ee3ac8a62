"""The manifests of Kubernetes: valid, confined, and with the rights that the real kubectl needs, no more."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from drydock_agent.__main__ import USAGE
from drydock_agent.service_manager import ALIVE_FILE
from drydock_agent.settings.load import SPEC

from tests.packaging.deploy import DEPLOY, program
from tests.packaging.kubernetes_api import KubernetesApi, kubernetes_api
from tests.processes import ROOT

FOLDER = DEPLOY / "kubernetes"
# The oldest that admission.yaml needs, and the newest that is known.
VERSIONS = ("1.32", "1.37")
EVENT_ID = "A123BC45-1234-5678-AB90-ABCDEF123456"


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def kubectl(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, check=False, timeout=60, env=env)


@pytest.fixture(scope="module")
def rendered() -> str:
    ended = kubectl("kustomize", FOLDER)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.long
@pytest.mark.deploy
def test_manifests_are_valid(rendered: str, tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(rendered)
    versions = [word for version in VERSIONS for word in ("-k", version)]
    ended = subprocess.run(
        [program("kubernetes-validate"), "--strict", *versions, file], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    # A kind without a schema would only be a warning.
    assert len(re.findall("^INFO .* passed ", ended.stdout, re.MULTILINE)) == len(VERSIONS) * len(documents(rendered))


@pytest.mark.long
@pytest.mark.deploy
def test_rendered_hooks_and_settings_are_those_that_the_pod_mounts(rendered: str) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents(rendered)}
    spec = found["DaemonSet", "drydock-agent"]["spec"]["template"]["spec"]
    hooks = {one["name"]: one for one in spec["volumes"]}["hooks"]["configMap"]
    data = found["ConfigMap", hooks["name"]]["data"]
    mounted = {item["path"]: data[item["key"]] for item in hooks["items"]}
    assert mounted == {
        str(path.relative_to(FOLDER / "hooks")): path.read_text() for path in (FOLDER / "hooks").rglob("*.d/*")
    }
    [settings] = [one["configMapRef"]["name"] for one in spec["containers"][0]["envFrom"]]
    assert ("ConfigMap", settings) in found
    # An image stated once counts for both containers.
    images = {one["image"] for one in (*spec["containers"], *spec["initContainers"])}
    assert images == {"registry.example.org/drydock-agent-kubectl:latest"}


def test_pod_is_confined_and_knows_its_node() -> None:
    [manifest] = documents((FOLDER / "daemonset.yaml").read_text())
    spec = manifest["spec"]["template"]["spec"]
    [agent], [init] = spec["containers"], spec["initContainers"]
    assert spec["hostNetwork"] and spec["tolerations"] == [{"operator": "Exists"}]
    assert (spec["securityContext"]["runAsNonRoot"], init["securityContext"]["capabilities"]["add"]) == (
        True,
        ["CHOWN", "FOWNER"],
    )
    assert f"--uid {spec['securityContext']['runAsUser']} " in (ROOT / "Dockerfile").read_text()
    for container in (agent, init):
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"]["drop"] == ["ALL"]
        assert {"requests", "limits"} <= set(container["resources"])
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in agent["volumeMounts"]}
    assert mounts == {"/var/lib/drydock-agent": False, "/etc/drydock-agent/hooks": True, "/tmp": False}
    variables = {one["name"]: one for one in agent["env"]}
    known = {f"DRYDOCK_{name.upper()}" for name in SPEC} | {ALIVE_FILE, "KUBE_NODE", "HOME"}
    assert set(variables) <= known
    for name in ("DRYDOCK_NODE_NAME", "KUBE_NODE"):
        assert variables[name]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert "value" not in variables["DRYDOCK_JOIN_TOKEN"]
    assert variables[ALIVE_FILE]["value"] in agent["livenessProbe"]["exec"]["command"][-1]
    assert f" {agent['readinessProbe']['exec']['command'][1]} " in USAGE


def test_no_manifest_has_a_secret() -> None:
    texts = [path.read_text() for path in FOLDER.rglob("*") if path.is_file()]
    assert not [text for text in texts if "kind: Secret\n" in text or "join_" in text or "secretGenerator" in text]


class Cluster:
    """The hooks of a node, with the real kubectl against a small API server."""

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        self.api = api
        config = folder / "config"
        contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        clusters, users = [{"name": "c", "cluster": {"server": api.url}}], [{"name": "u", "user": {"token": "t"}}]
        kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts, "users": users}
        config.write_text(json.dumps({**kubeconfig, "current-context": "c"}))
        event = {"DRYDOCK_EVENT_ID": EVENT_ID, "DRYDOCK_EVENT_TYPE": "Reboot", "DRYDOCK_OTHER_EVENTS": ""}
        node = {"HOME": str(folder), "KUBECONFIG": str(config), "KUBE_NODE": "node-1"}
        self.environment = {"PATH": os.environ["PATH"], **node, **event}

    def run(self, hook: str, *, seconds: int = 60, **variables: str) -> tuple[int, str]:
        if shutil.which("kubectl") is None:
            pytest.skip("no kubectl here")
        ended = subprocess.run(
            [FOLDER / "hooks" / hook],
            env={**self.environment, "DRYDOCK_HOOK_TIMEOUT_SECONDS": f"{seconds}.0", **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=90,
        )  # fmt: skip
        return ended.returncode, ended.stdout

    @property
    def state(self) -> tuple[bool, dict[str, str], set[str]]:
        """Whether the node is cordoned, its annotations, and the pods."""
        node = self.api.node
        return node["spec"].get("unschedulable", False), node["metadata"]["annotations"], set(self.api.pods)


PREPARE, RECOVER = "prepare.d/20-cordon-and-drain", "recover.d/80-uncordon"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with kubernetes_api(FOLDER / "rbac.yaml") as api:
        yield Cluster(api, tmp_path)


@pytest.mark.deploy
def test_hooks_need_exactly_the_rights_of_the_role_and_move_the_pods_of_their_node_only(cluster: Cluster) -> None:
    cluster.api.refusals = 1
    assert cluster.run(PREPARE)[0] == 0
    assert cluster.state == (True, {"drydock/cordoned": EVENT_ID}, {"log", "far"})
    # Again, as after a crash of the agent.
    assert cluster.run(PREPARE)[0] == 0
    status, output = cluster.run(RECOVER, DRYDOCK_OTHER_EVENTS="another")
    assert (status, output, cluster.state[0]) == (0, "node-1 stays cordoned, because of another.\n", True)
    assert cluster.run(RECOVER)[0] == 0
    assert cluster.state == (False, {}, {"log", "far"})
    assert (cluster.api.denied, cluster.api.used) == (set(), cluster.api.granted)


@pytest.mark.deploy
def test_a_disruption_budget_that_permits_nothing_ends_the_hook_in_its_time_and_the_node_comes_back(
    cluster: Cluster,
) -> None:
    cluster.api.refusals = 1000
    began = time.monotonic()
    status, output = cluster.run(PREPARE, seconds=10)
    assert status != 0 and "web" in output
    assert time.monotonic() - began < 10 + 5
    assert cluster.run(RECOVER)[0] == 0
    assert cluster.state == (False, {}, {"web", "log", "far"})


@pytest.mark.deploy
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_cordon_of_another_client_stays(cluster: Cluster, meanwhile: bool) -> None:
    cluster.api.meddles = meanwhile
    cluster.api.node["spec"] = {} if meanwhile else {"unschedulable": True}
    status, output = cluster.run(PREPARE)
    assert status == 0 and "node-1 is already cordoned.\n" in output and ("Conflict" in output) is meanwhile
    assert cluster.run(RECOVER) == (0, "node-1 was not cordoned from here.\n")
    assert cluster.state == (True, {}, {"log", "far"})


@pytest.mark.deploy
def test_a_freeze_moves_no_pods_and_an_unknown_node_is_a_failure_in_words(cluster: Cluster) -> None:
    assert cluster.run(PREPARE, DRYDOCK_EVENT_TYPE="Freeze")[0] == 0
    assert cluster.api.used == set()
    status, output = cluster.run(PREPARE, KUBE_NODE="node-9")
    assert status != 0 and "NotFound" in output
    assert cluster.state == (False, {}, {"web", "log", "far"})
