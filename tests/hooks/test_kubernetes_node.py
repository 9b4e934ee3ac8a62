"""Cordon and drain of a Kubernetes node, with a stand-in for kubectl that keeps one node and its pods in a file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.conftest import Example, ExampleFactory
from tests.processes import ROOT

HOOKS = ROOT / "agents" / "deploy" / "kubernetes" / "hooks"

KUBECTL = r"""#!{python}
import json, os, pathlib, sys
file = pathlib.Path(os.environ["CLUSTER"])
node = json.loads(file.read_text())
verb, words = sys.argv[1], [word for word in sys.argv[2:] if not word.startswith("--")]
options = [word for word in sys.argv[2:] if word.startswith("--")]
if node["name"] not in words:
    sys.exit('Error from server (NotFound): nodes "' + words[-1] + '" not found')
if verb == "get":
    values = {
        "{.metadata.resourceVersion}": str(node["version"]),
        "{.spec.unschedulable}": "true" if node["unschedulable"] else "",
        "{.metadata.annotations.drydock/cordoned}": node["annotations"].get("drydock/cordoned", ""),
    }
    print(",".join(values[path] for path in words[-1].removeprefix("jsonpath=").split(",")), end="")
    if node["meddler"]:
        # Another client cordons the node before the hook does.
        node["meddler"], node["unschedulable"], node["version"] = False, True, node["version"] + 1
elif verb == "patch":
    patch = json.loads(words[-1])
    if patch["metadata"].get("resourceVersion", str(node["version"])) != str(node["version"]):
        sys.exit("Error from server (Conflict): the object has been modified")
    for key, value in patch["metadata"]["annotations"].items():
        node["annotations"].pop(key, None)
        if value is not None:
            node["annotations"][key] = value
    node["unschedulable"] = patch["spec"]["unschedulable"] or False
elif verb == "drain":
    node["drained_with"] = options
    node["unschedulable"] = True
    if "--ignore-daemonsets" not in options:
        sys.exit("error: cannot delete DaemonSet-managed Pods")
    if node["pods"].get("stuck"):
        sys.exit("error: timed out waiting for the eviction of stuck")
    node["pods"] = {name: kind for name, kind in node["pods"].items() if kind == "DaemonSet"}
else:
    sys.exit("unknown command " + verb)
file.write_text(json.dumps(node))
"""


class Cluster:
    def __init__(self, file: Path) -> None:
        self.file = file
        pods = {"web": "Deployment", "log": "DaemonSet"}
        self.write(name="node-1", version=1, unschedulable=False, annotations={}, pods=pods, meddler=False)

    def write(self, **changes: Any) -> None:
        self.file.write_text(json.dumps({**(self.node if self.file.exists() else {}), **changes}))

    @property
    def node(self) -> dict[str, Any]:
        node: dict[str, Any] = json.loads(self.file.read_text())
        return node


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster.json")


@pytest.fixture
def made(example: ExampleFactory, tmp_path: Path, cluster: Cluster) -> Example:
    made = example(str(HOOKS), timeout=20)
    made.replace_program(tmp_path / "bin", "kubectl", KUBECTL.replace("{python}", sys.executable))
    made.set(CLUSTER=cluster.file, KUBE_NODE="node-1")
    return made


def test_the_node_is_cordoned_and_drained_and_later_uncordoned(made: Example, cluster: Cluster) -> None:
    event_id, _ = made.prepare()
    assert cluster.node["unschedulable"] is True
    assert cluster.node["pods"] == {"log": "DaemonSet"}
    assert cluster.node["annotations"] == {"drydock/cordoned": event_id}
    assert "--timeout=18s" in cluster.node["drained_with"]
    made.recover(event_id)
    assert (cluster.node["unschedulable"], cluster.node["annotations"]) == (False, {})


def test_a_cordon_that_a_person_laid_stays(made: Example, cluster: Cluster) -> None:
    cluster.write(unschedulable=True)
    event_id, said = made.prepare()
    assert "node-1 is already cordoned.\n" in said
    assert cluster.node["pods"] == {"log": "DaemonSet"}
    assert made.recover(event_id) == "node-1 was not cordoned from here.\n"
    assert cluster.node["unschedulable"] is True


def test_a_cordon_laid_meanwhile_stays(made: Example, cluster: Cluster) -> None:
    cluster.write(meddler=True)
    event_id, said = made.prepare()
    assert "Conflict" in said and said.endswith("node-1 is already cordoned.\n")
    assert cluster.node["annotations"] == {}
    made.recover(event_id)
    assert cluster.node["unschedulable"] is True


def test_the_node_stays_cordoned_while_another_event_is_coming(made: Example, cluster: Cluster) -> None:
    first, _ = made.prepare()
    second, _ = made.prepare("Redeploy")
    assert made.recover(first) == f"node-1 stays cordoned, because of {second}.\n"
    assert cluster.node["unschedulable"] is True
    made.cancel(second)
    assert (cluster.node["unschedulable"], cluster.node["annotations"]) == (False, {})


def test_a_freeze_moves_no_pods(made: Example, cluster: Cluster) -> None:
    before = cluster.node
    event_id, _ = made.prepare("Freeze")
    made.recover(event_id)
    assert cluster.node == before


def test_a_pod_that_cannot_be_moved_is_a_failure_and_the_node_comes_back_all_the_same(
    made: Example, cluster: Cluster
) -> None:
    cluster.write(pods={"stuck": "Deployment"})
    event_id, said = made.prepare(ends="failed")
    assert said == "error: timed out waiting for the eviction of stuck\n"
    made.recover(event_id)
    assert cluster.node["unschedulable"] is False


def test_a_node_that_is_not_known_is_a_failure_in_words(made: Example) -> None:
    made.set(KUBE_NODE="node-9")
    _, said = made.prepare(ends="failed")
    assert 'nodes "' in said and "not found" in said
