"""The manifests of Kubernetes: valid, confined, and with the rights that the real kubectl needs, no more."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from drydock_agent.__main__ import USAGE
from drydock_agent.service_manager import ALIVE_FILE
from drydock_agent.settings.load import SPEC

from tests.packaging.deploy import DEPLOY, program
from tests.processes import ROOT
from tests.receivers import Handler, serving

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


# A small API server of Kubernetes for the real kubectl: one node, its pods, and the rights of our ClusterRole.

# Group, resource and verb of each call that is no discovery.
Right = tuple[str, str, str]
VERBS = {"GET": "get", "PATCH": "patch", "POST": "create"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/[^/]+)?/(?P<kind>[a-z]+)(?:/(?P<name>[^/?]+))?(?P<sub>/[a-z]+)?"
)


def resource(name: str, kind: str, verbs: str, **more: str) -> dict[str, Any]:
    described = {"name": name, "kind": kind, "verbs": verbs.split(), **more}
    return {**described, "singularName": "", "namespaced": kind != "Node"}


RESOURCES = {
    "/api/v1": [
        resource("nodes", "Node", "get patch"),
        resource("pods", "Pod", "get list"),
        resource("pods/eviction", "Eviction", "create", group="policy", version="v1"),
    ],
    "/apis/apps/v1": [resource("daemonsets", "DaemonSet", "get")],
    "/apis/policy/v1": [resource("poddisruptionbudgets", "PodDisruptionBudget", "get")],
}
GROUPS = [
    {"name": name, "versions": [version], "preferredVersion": version}
    for name in ("apps", "policy")
    for version in [{"groupVersion": f"{name}/v1", "version": "v1"}]
]
DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS},
    **{
        path: {"kind": "APIResourceList", "groupVersion": path.split("/", 2)[2], "resources": found}
        for path, found in RESOURCES.items()
    },
}


def pod(name: str, node: str, owner: str) -> dict[str, Any]:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": name, "controller": True}]
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": {}}


class KubernetesApi:
    """`refusals` is how often a disruption budget refuses an eviction. `meddles`: another client cordons the node after
    its next reading. `used` are the rights that calls needed, and `denied` those that the role does not have.
    """

    def __init__(self, role: Path) -> None:
        [document] = [one for one in yaml.safe_load_all(role.read_text()) if one["kind"] == "ClusterRole"]
        self.granted: set[Right] = {
            (group, kind, verb)
            for rule in document["rules"]
            for group in rule["apiGroups"]
            for kind in rule["resources"]
            for verb in rule["verbs"]
        }
        self.used: set[Right] = set()
        self.denied: set[Right] = set()
        self.refusals = 0
        self.meddles = False
        self.url = ""
        metadata = {"name": "node-1", "resourceVersion": "7", "annotations": {}, "labels": {}}
        self.node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}}
        pods = (("web", "node-1", "ReplicaSet"), ("log", "node-1", "DaemonSet"), ("far", "node-2", "ReplicaSet"))
        self.pods = {name: pod(name, node, owner) for name, node, owner in pods}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        bare, _, query = path.partition("?")
        if bare in DISCOVERY:
            return 200, DISCOVERY[bare]
        called = PATH.fullmatch(bare)
        if called is None:
            return failure(404, "NotFound")
        kind, name = called["kind"] + (called["sub"] or ""), called["name"]
        right = (called["group"] or "", kind, VERBS[method] if name else "list")
        self.used.add(right)
        if right not in self.granted:
            self.denied.add(right)
            return failure(403, "Forbidden")
        if kind == "nodes":
            return self._node(name, body)
        if kind == "pods" and name is None:
            node = query.rpartition("spec.nodeName%3D")[2].partition("&")[0]
            items = [one for one in self.pods.values() if one["spec"]["nodeName"] == node]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        if kind == "daemonsets":
            return 200, {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": name}}
        if kind == "pods":
            return (200, self.pods[name]) if name in self.pods else failure(404, "NotFound")
        if self.refusals:
            self.refusals -= 1
            return failure(429, "TooManyRequests")
        del self.pods[name]
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _node(self, name: str, patch: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        metadata = self.node["metadata"]
        if name != metadata["name"]:
            return failure(404, "NotFound")
        if patch is None:
            node = json.loads(json.dumps(self.node))
            if self.meddles:
                self.meddles, metadata["resourceVersion"] = False, "8"
                self.node["spec"]["unschedulable"] = True
            return 200, node
        if patch["metadata"].pop("resourceVersion", metadata["resourceVersion"]) != metadata["resourceVersion"]:
            return failure(409, "Conflict")
        for part, values in (("spec", patch["spec"]), ("metadata", patch["metadata"])):
            merge(self.node[part], values)
        return 200, self.node


@contextmanager
def kubernetes_api(role: Path) -> Iterator[KubernetesApi]:
    """Serve the API for the length of a block."""
    api = KubernetesApi(role)

    class Here(Handler):
        def take(self) -> None:
            body = self.body()
            status, content = api.answer(self.command, self.path, json.loads(body) if body else None)
            self.answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

        do_PATCH = Handler.do_GET  # noqa: N815 - a name of the library

    with serving(Here) as api.url:
        yield api


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


def failure(status: int, reason: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}


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
