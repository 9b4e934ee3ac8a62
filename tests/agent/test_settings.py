"""Settings: environment, then the TOML file, then the default; a wrong one is one clear sentence, without a key."""

import re
from pathlib import Path

import pytest
from drydock_agent.platforms import posix
from drydock_agent.settings.caches import KEYS
from drydock_agent.settings.load import SPEC, ConfigError, Settings, load
from drydock_agent.settings.loopback import is_loopback

from tests.processes import ROOT

FLEET = {"DRYDOCK_FLEET_URL": "https://drydock.example"}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "admin" / "agent.md"


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load(FLEET)
    assert settings.imds_url == "http://169.254.169.254"
    assert (settings.poll_seconds, settings.reminder_seconds) == (1.0, 300.0)
    assert (settings.log_level, settings.signed_orders) == ("info", "auto")
    assert load({**FLEET, "DRYDOCK_SIGNED_ORDERS": "Always"}).signed_orders == "always", "words in any case"
    machine = {"DRYDOCK_MACHINE_ID": "{5AE706DF-54E6-5D67-960F-2D30303BC837}"}
    assert load({**FLEET, **machine}).machine_id == "5ae706df-54e6-5d67-960f-2d30303bc837"


def from_file(folder: Path, text: str, **environment: str) -> Settings:
    file = folder / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return load({"DRYDOCK_CONFIG": str(file), **environment})


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    text = 'fleet_url = "https://file.example/"\npoll_seconds = 5\nmachine_id = "m"\n'
    settings = from_file(tmp_path, text, DRYDOCK_POLL_SECONDS="2", DRYDOCK_MACHINE_ID="")
    assert (settings.fleet_url, settings.poll_seconds, settings.machine_id) == ("https://file.example", 2.0, "m")


HTTPS = "must begin with https:// because plain HTTP is refused beyond loopback (http://drydock.example)"
MINUTES = "must be minutes or now, and TYPE=MINUTES for Freeze, Reboot, Redeploy, Preempt, Terminate"
WRONG_MINUTES = ("soon", "-5", "inf", "Reboots=5", "5,6", "Freeze=1 freeze=2", "Freeze=", "1e3")
KINDS = "availability_set, scale_set, cloud_service, standalone"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("FLEET_URL", "", "is not set: it is the address of the Drydock backend"),
        ("FLEET_URL", "http://drydock.example", HTTPS),
        ("FLEET_URL", "drydock.example", "must be an http or https address, not 'drydock.example'"),
        ("FLEET_URL", "https://drydock.example:99999", "is not an address: Port out of range 0-65535"),
        ("IMDS_URL", "http://u:p@h", "must not carry a user, a query or a fragment"),
        ("POLL_SECONDS", "0.1", "must be between 0.5 and 60 seconds, not 0.1"),
        ("POLL_SECONDS", "nan", "must be between 0.5 and 60 seconds, not nan"),
        ("HOOK_TIMEOUT_SECONDS", "0", "must be between 1 and 86400 seconds, not 0"),
        ("REMINDER_SECONDS", "x", "must be a number of seconds, not 'x'"),
        ("AVAILABILITY_SET", "a:b", f"must be a name or KIND:NAME with KIND one of {KINDS}, not 'a:b'"),
        *(("PREPARE_MINUTES", text, f"{MINUTES}, not {text!r}") for text in WRONG_MINUTES),
        ("PREPARE_MINUTES", "60,Freeze=43201", "must be at most 43200 minutes, not 43201"),
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("DISCOVER_ENDPOINT", "yes", "must be one of auto, always, never, not 'yes'"),
        ("SIGNED_ORDERS", "sometimes", "must be one of auto, always, never, not 'sometimes'"),
        ("JOIN_TOKEN", "a\nb", "must not contain control characters"),
        ("CA_FILE", "/no/such/file", "names /no/such/file, which is not a file"),
        ("MACHINE_ID", "x" * 129, "must have at most 128 characters"),
        ("CONFIG", "/no/such/file", "names /no/such/file, which cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_setting_is_one_sentence(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({**FLEET, f"DRYDOCK_{name}": value})
    assert str(caught.value) == f"DRYDOCK_{name} {problem}."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("poll_secs = 1", r"has the unknown setting 'poll_secs'\.$"),
        ("fleet_url = ", r"which is not valid TOML: .+\.$"),
        ("fleet_url = 7", r"^DRYDOCK_FLEET_URL must be text, not 7\.$"),
        ("poll_seconds = true", r"^DRYDOCK_POLL_SECONDS must be a number of seconds, not True\.$"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        from_file(tmp_path, text)


def test_plain_http_is_allowed_to_loopback_only() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert is_loopback(host)
        assert load({"DRYDOCK_FLEET_URL": f"http://{f'[{host}]' if ':' in host else host}:8000"})
    for host in ("drydock.example", "10.0.0.1", "localhost.example", "127.0.0.1.example", ""):
        assert not is_loopback(host)


def test_every_system_has_state_and_hooks_apart_from_what_the_agent_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert posix.state_dir({}) == "/var/lib/drydock-agent"
    monkeypatch.setattr("sys.platform", "darwin")
    assert posix.state_dir({}).startswith("/Library")
    assert posix.hooks_dir({}) == "/etc/drydock-agent/hooks"
    assert load({**FLEET, "DRYDOCK_HOOKS_DIR": "/srv/hooks"}).hooks_dir == Path("/srv/hooks")
    assert load(FLEET).hook_timeout_seconds == 300


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(DRYDOCK_\w+)` \| ([^|]*) \|", DOCS.read_text("utf-8"), re.MULTILINE))
    assert set(rows) == {f"DRYDOCK_{name.upper()}" for name in SPEC} | {"DRYDOCK_CONFIG"}
    for name, (default, _) in SPEC.items():
        if isinstance(default, str):
            assert rows[f"DRYDOCK_{name.upper()}"].strip() == (f"`{default}`" if default else "none"), name


PAGE = (ROOT / "docs" / "admin" / "redis.md").read_text(encoding="utf-8")


def given(text: str) -> Settings:
    return load({**FLEET, "DRYDOCK_REDIS_CACHES": text})


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
        **FLEET,
    )
    first, second = settings.redis_caches
    assert (first.secret(), first.tier, first.tls) == ("secret", "standard", True)
    assert (second.secret(), second.port, second.tls, second.divisor) == ("p", 6379, False, 4)
    wrong = {"[[redis_caches]]\nport = 6380\n": "needs the host name", "redis_caches = 3\n": "must be addresses or"}
    for text, words in wrong.items():
        with pytest.raises(ConfigError, match=words):
            from_file(tmp_path, text, **FLEET)


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
