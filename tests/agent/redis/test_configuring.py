"""`DRYDOCK_REDIS_CACHES` and the tables of the TOML file; a wrong one is one clear sentence without the key."""

import re
from pathlib import Path

import pytest
from drydock_agent.settings.caches import KEYS
from drydock_agent.settings.load import ConfigError, Settings, load

from tests.processes import ROOT

FLEET = {"DRYDOCK_FLEET_URL": "https://drydock.example"}
PAGE = (ROOT / "docs" / "admin" / "redis.md").read_text(encoding="utf-8")


def given(text: str) -> Settings:
    return load({**FLEET, "DRYDOCK_REDIS_CACHES": text})


def from_file(folder: Path, text: str) -> Settings:
    file = folder / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return load({**FLEET, "DRYDOCK_CONFIG": str(file)})


def test_a_host_name_is_enough_and_means_tls_on_6380() -> None:
    assert load(FLEET).redis_caches == (), "none by default"
    (cache,) = given("Shop.redis.cache.windows.net").redis_caches
    assert (cache.host, cache.port, cache.tls) == ("shop.redis.cache.windows.net", 6380, True)
    assert (cache.username, cache.secret(), cache.tier, cache.divisor) == ("", "", "", 2)


def test_an_address_carries_all_that_a_table_does() -> None:
    first, second = given(
        "rediss://me:a%2Fb%2B%3D@shop.redis.cache.windows.net:7000?tier=Premium&divisor=3&connect=10.0.0.4:6380,"
        " rediss://stock.redis.cache.chinacloudapi.cn?entra=managed-identity"
    ).redis_caches
    assert (first.username, first.secret()) == ("me", "a/b+=")
    assert (first.port, first.tier, first.divisor) == (7000, "premium", 3)
    assert first.address == ("10.0.0.4", 6380)
    assert (second.entra, second.address) == ("managed-identity", ("stock.redis.cache.chinacloudapi.cn", 6380))


def test_tables_of_the_file_are_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("  secret\n")
    settings = from_file(
        tmp_path,
        f'[[redis_caches]]\nhost = "a.redis.cache.windows.net"\npassword_file = "{key}"\ntier = "standard"\n'
        '[[redis_caches]]\nhost = "b.redis.cache.windows.net"\nport = 6379\ntls = false\npassword = "p"\ndivisor = 4\n',
    )
    first, second = settings.redis_caches
    assert (first.secret(), first.tier, first.tls) == ("secret", "standard", True)
    assert (second.secret(), second.port, second.tls, second.divisor) == ("p", 6379, False, 4)
    wrong = {"[[redis_caches]]\nport = 6380\n": "needs the host name", "redis_caches = 3\n": "must be addresses or"}
    for text, words in wrong.items():
        with pytest.raises(ConfigError, match=words):
            from_file(tmp_path, text)


def test_plain_is_for_loopback_or_where_it_is_stated() -> None:
    for text in (
        "redis://127.0.0.1",
        "redis://[::1]:7000",
        "redis://localhost",
        "redis://shop.redis.cache.windows.net?connect=127.0.0.1:7000",
        "redis://shop.redis.cache.windows.net?tls=false",
        "shop.redis.cache.windows.net?connect=unix:/run/cache",
    ):
        (cache,) = given(text).redis_caches
        assert not cache.tls
    with pytest.raises(ConfigError, match=r"would send the key of shop\.example in the clear"):
        given("redis://:secret@shop.example")


# Regions and domains of what publishes nothing: Azure Managed Redis and Redis Enterprise.
SILENT = (
    "westeurope.redis.azure.net WESTEUROPE.redisenterprise.cache.azure.net usgovvirginia.redis.usgovcloudapi.net"
    " chinanorth3.redis.chinacloudapi.cn germany.redis.sovcloud-api.de france.redis.sovcloud-api.fr"
)
PUBLISHING = "redis.cache.windows.net redis.cache.chinacloudapi.cn redis.cache.usgovcloudapi.net"


def test_hosts_that_publish_nothing_are_known_and_others_are_listened_to() -> None:
    assert [host for host in SILENT.split() if given(f"a.{host}").redis_caches[0].publishes] == []
    assert all(given(f"a.{host}").redis_caches[0].publishes for host in PUBLISHING.split())
    assert given("10.0.0.4").redis_caches[0].publishes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rediss://:hush@a.example/0", "is not rediss://HOST:PORT"),
        ("rediss://:hu/sh@a.example", "cannot be read|is not rediss"),
        ("http://:hush@a.example", "is not rediss://HOST:PORT"),
        ("rediss://:hush@a.example:99999", "cannot be read"),
        ("rediss://:hush@a.example?tier=gold", "the tier 'gold', which is none of basic, standard, premium"),
        ("rediss://:hush@a.example?divisor=0", "the divisor '0'"),
        ("rediss://:hush@a.example?colour=red", "has 'colour', which no cache has"),
        ("rediss://:hush@a.example?password=hush", "has password in the query"),
        ("rediss://:hush@a.example?entra=managed-identity", "more than one of password, password_file and entra"),
        ("rediss://:hush@a.example?connect=nowhere", "is HOST:PORT or unix:PATH"),
        ("rediss://:hush@a.example?tls=maybe", "tls=maybe; it is true or false"),
        ("rediss://:hush@a.example?ca_file=/no/such", "is not a file"),
        ("rediss://:hush@a.example rediss://A.example", "names a.example twice"),
        ("rediss://:hush@", "needs the host name"),
    ],
)
def test_a_wrong_cache_is_said_in_one_sentence_without_its_key(text: str, words: str) -> None:
    assert "hush" not in repr(given("rediss://:hush@a.example"))
    with pytest.raises(ConfigError, match=words) as refused:
        given(text)
    assert str(refused.value).startswith("DRYDOCK_REDIS_CACHES ") and "hush" not in str(refused.value)


def test_the_page_describes_every_key_and_no_other() -> None:
    table = PAGE.split("## Configuring")[1].split("**Which caches.**")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == list(KEYS)
