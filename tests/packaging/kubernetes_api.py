"""A small API server of Kubernetes for the real kubectl: one node, its pods, and the rights of our ClusterRole."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.receivers import Handler, serving

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
