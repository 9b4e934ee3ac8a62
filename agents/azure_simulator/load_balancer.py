"""Load balancer metadata of a machine (`/metadata/loadbalancer`): the inbound and outbound rules of the load balancer
of the machine's set.

Sources: "Retrieve load balancer metadata using Azure Instance Metadata Service" (Microsoft, 01/29/2026); for errors
"Common error codes when using IMDS to retrieve load balancer information" (06/26/2024).
"""

from __future__ import annotations

from typing import Any

from azure_simulator import instance
from azure_simulator.fleet import LoadBalancer, Machine

VERSIONS = tuple(version for version in instance.VERSIONS if version >= "2020-10-01")
NONE = (
    "No load balancer metadata is found. Please check if your VM is using any non-basic SKU load balancer and "
    "retry later."
)


def content(balancer: LoadBalancer, machine: Machine) -> dict[str, Any]:
    """Return the load balancer metadata of a machine. Ports are numbers here, unlike in `/metadata/instance`."""
    ends = {"frontendIpAddress": balancer.address, "privateIpAddress": instance.private_address(machine)}
    inbound = [
        {
            "frontendIpAddress": balancer.address,
            "protocol": "tcp",
            "frontendPort": frontend,
            "backendPort": backend,
            "privateIpAddress": ends["privateIpAddress"],
        }
        for frontend, backend in balancer.ports
    ]
    # No machine has a public address of its own.
    return {"loadbalancer": {"publicIpAddresses": [], "inboundRules": inbound, "outboundRules": [ends]}}
