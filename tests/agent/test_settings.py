"""Settings: environment, then the TOML file, then the default; a wrong one is one clear sentence."""

import re
from pathlib import Path

import pytest
from drydock_agent.platforms import posix
from drydock_agent.settings.load import SPEC, ConfigError, load
from drydock_agent.settings.loopback import is_loopback

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


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('fleet_url = "https://file.example/"\npoll_seconds = 5\nmachine_id = "m"\n', encoding="utf-8")
    settings = load({"DRYDOCK_CONFIG": str(file), "DRYDOCK_POLL_SECONDS": "2", "DRYDOCK_MACHINE_ID": ""})
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
    file = tmp_path / "agent.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        load({"DRYDOCK_CONFIG": str(file)})


def test_plain_http_is_allowed_to_loopback_only() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert is_loopback(host)
        assert load({"DRYDOCK_FLEET_URL": f"http://{f'[{host}]' if ':' in host else host}:8000"})
    for host in ("drydock.example", "10.0.0.1", "localhost.example", "127.0.0.1.example", ""):
        assert not is_loopback(host)


def test_every_system_has_its_state_folder_and_its_hooks_apart_from_what_the_agent_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
