"""Tokens of managed identities, as Azure's client libraries request them."""

from urllib.parse import urlencode

import pytest

from tests.simulator.asking import simulated
from tests.simulator.test_stories_and_scope import of_kind

OWN, OTHER = "2b6c5a2e-6a5e-4d5f-8f6e-1c9a4f0e7d11", "9d1f7a34-0b0d-4a4e-9d53-7b7f5c1a2e22"
RESOURCE = "https://redis.azure.com"


def target(**query: str) -> str:
    stated = {"api-version": "2018-02-01", "resource": RESOURCE, **query}
    return f"/metadata/identity/oauth2/token?{urlencode(stated)}"


@pytest.mark.parametrize(
    ("identities", "query", "expected"),
    [
        ([OWN], {}, OWN),
        ([OWN], {"client_id": OWN}, OWN),
        ([OWN, OTHER], {"client_id": OTHER}, OTHER),
        ([OWN, OTHER], {}, "Multiple user assigned identities exist"),
        ([OWN], {"client_id": OTHER}, "Identity not found"),
        ([], {}, "Identity not found"),
        ([OWN], {"resource": ""}, "AADSTS500011"),
        ([OWN], {"api-version": ""}, "'api-version' is missing"),
    ],
)
def test_a_machine_gets_a_token_of_its_own_identities_only(
    identities: list[str], query: dict[str, str], expected: str
) -> None:
    whole = of_kind("standalone", 1)
    whole["machines"][0]["identities"] = identities
    with simulated({"sets": [whole]}) as region:
        answer = region.get("standalone_0", target(**query))
        if expected in identities:
            content = answer.json
            assert (content["client_id"], content["resource"], content["token_type"]) == (expected, RESOURCE, "Bearer")
            assert int(content["expires_on"]) > int(content["not_before"]) and int(content["expires_in"]) > 0
            assert content["access_token"].count(".") == 2
        else:
            assert answer.status == 400 and expected in answer.json["error_description"]
        assert region.get("standalone_0", target(), headers={}).status == 400
