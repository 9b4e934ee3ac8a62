"""Settings: one table, the same in the documentation, read from variables or files, refused in plain sentences."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from fleet.checks import proxy_is_trusted
from fleet.configuration import markdown, table
from fleet.embedded.parent_death import bound
from fleet.settings import broker, database
from tests.certificates import Authority
from tests.processes import PYTHON, ROOT


def test_the_documentation_holds_every_setting_with_its_default_and_no_other() -> None:
    text = (ROOT / "docs" / "admin" / "settings.md").read_text()
    assert markdown() in text, "run `manage.py print_docs`"
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)) == set(table)


def test_only_the_settings_module_reads_the_environment() -> None:
    elsewhere = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "fleet").rglob("*.py")
        if re.search(r"os\.(environ\b|getenv)", path.read_text())
    }
    # Those that start other processes hand an environment on; Django and Celery want the name of the settings module;
    # and the server's main process, which logs too, has no settings.
    assert elsewhere <= {
        "fleet/__main__.py",
        "fleet/asgi.py",
        "fleet/celery.py",
        "fleet/logs.py",
        "fleet/management/commands/demo.py",
        "fleet/management/commands/with_servers.py",
        "fleet/management/supervisor.py",
        "fleet/settings.py",
    }


def read(name: str, **environment: str) -> Any:
    return table[name].value(environment)


def test_a_file_holds_a_value_and_wins(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from the file\n")
    assert read("SECRET_KEY", SECRET_KEY="from the variable", SECRET_KEY_FILE=str(path)) == "from the file"


def test_a_former_name_is_read_where_the_present_one_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "tag"
    path.write_text("set\n")
    given = {"TICKER_SECONDS": "7", "SET_TAG_FILE": str(path)}
    assert read("FALLBACK_TICK_SECONDS", **given) == 7 and read("AVAILABILITY_SET_TAG", **given) == "set"
    assert {each.former for each in table.values() if each.is_former(given)} == {"TICKER_SECONDS", "SET_TAG"}
    both = {"TICKER_SECONDS": "7", "FALLBACK_TICK_SECONDS": "8"}
    assert read("FALLBACK_TICK_SECONDS", **both) == 8 and not any(each.is_former(both) for each in table.values())


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read("MACHINE_LIVE_SECONDS", MACHINE_LIVE_SECONDS="", MACHINE_LIVE_SECONDS_FILE="") == 60


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("MACHINE_LIVE_SECONDS", "soon", "has to be a number of seconds above zero, not 'soon'."),
        ("MACHINE_LIVE_SECONDS", "nan", "has to be a number of seconds above zero, not 'nan'."),
        ("PORT", "0", "has to be a whole number above zero, not '0'."),
        ("DEBUG", "maybe", "has to be `yes` or `no`, not 'maybe'."),
        ("SECRET_KEY_FILE", "/nowhere/key", "names /nowhere/key, which"),
        # A URL set by mistake may contain a password, so the error does not repeat it.
        *(
            ("EGRESS_PROXY", value, "has to be host:port, without a scheme")
            for value in ("http://ann:secret@x:3128", "ann:secret@x:3128", "proxy", "proxy:0", "proxy:70000", "::1:80")
        ),
        ("EGRESS_ALLOWLIST", "inside", "has to hold addresses or networks"),
        ("EGRESS_CA_FILE", "/nowhere/ca.pem", "names /nowhere/ca.pem, which cannot be read"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"^{re.escape(f'{name} {sentence}')}"):
        read(name.removesuffix("_FILE") if name == "SECRET_KEY_FILE" else name, **{name: value})


def ended_process(*words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = bound([PYTHON, *words])
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_process_with_a_bad_value_ends_with_its_sentence() -> None:
    ended = ended_process("-c", "import fleet.settings", environment={"REDIS_URL": "http://cache"})
    sentence = "REDIS_URL has to start with redis:// or rediss:// or unix://, not 'http://c'."
    assert f"{ImproperlyConfigured.__name__}: {sentence}" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"DATABASE_URL": ""}, "fleet.E001"),
        ({"REDIS_URL": ""}, "fleet.E002"),
        ({"SECRET_KEY_IS_OURS": True}, "fleet.E003"),
        ({"MACHINE_LIVE_SECONDS": 700.0}, "fleet.E004"),
        ({"BASE_URL": "https://drydock.example", "DEBUG": True}, "fleet.E005"),
        ({"BASE_URL": "https://drydock.example", "SECRET_KEY": "short"}, "fleet.E006"),
        ({"EMAIL_USE_TLS": True, "EMAIL_USE_SSL": True}, "fleet.E007"),
        ({"REDIS_URL": "rediss://cache.example:10000/3"}, "fleet.W001"),
        ({"BASE_URL": "http://drydock.example"}, "fleet.W002"),
        ({"EGRESS_ALLOWLIST": ["10.0.0.0/8", "0.0.0.0/0"]}, "fleet.W003"),
        ({"EGRESS_ALLOWLIST": ["::/0"]}, "fleet.W003"),
        ({"FORMER_SETTING_NAMES": [("FALLBACK_TICK_SECONDS", "TICKER_SECONDS")]}, "fleet.W007"),
        ({"BASE_URL": "http://127.0.0.1:8000"}, "fleet.W004"),
        ({"BASE_URL": "https://drydock.example"}, "fleet.W005"),
        ({"BASE_URL": "https://drydock.example", "BEHIND_PROXY": True}, "fleet.W006"),
    ],
)
def test_a_check_names_what_is_wrong(settings: Settings, changed: dict[str, object], check: str) -> None:
    for name, value in changed.items():
        setattr(settings, name, value)
    assert check in [message.id for message in [*run_checks(), *proxy_is_trusted(None)]]


def production() -> dict[str, str]:
    """The settings of the web service in docker-compose.yml, with those of docs/admin/proxy.md for a proxy."""
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["web"]["environment"]
    given = {"POSTGRES_PASSWORD": "x" * 32, "SECRET_KEY": "0123456789abcdef" * 4}
    page = (ROOT / "docs" / "admin" / "proxy.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| [^|`]*`([^`]+)`", page, re.MULTILINE))
    assert set(documented) == {"BASE_URL", "BEHIND_PROXY", "TRUSTED_PROXIES"}

    def filled(text: str) -> str:
        return re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", lambda found: given.get(found[1], found[3] or ""), text)

    stated = {name: filled(value) for name, value in service.items() if value is not None}
    return {**stated, **documented}


def test_nothing_is_wrong_with_the_documented_settings_where_others_reach_it() -> None:
    options = ("--deploy", "--fail-level", "WARNING")
    ended = ended_process("manage.py", "check", *options, environment=production())
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert "no issues (2 silenced)" in ended.stdout


def test_where_messages_may_go_is_read() -> None:
    assert read("EGRESS_ALLOWLIST", EGRESS_ALLOWLIST="10.1.0.0/16, fd00::/8") == ["10.1.0.0/16", "fd00::/8"]
    for value in ("[fd00::1]:3128", "proxy.example:3128", ""):
        assert read("EGRESS_PROXY", EGRESS_PROXY=value) == value


def test_only_certificates_of_a_file_are_shown_to_machines(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("localhost")
    path = tmp_path / "localhost.pem"
    assert "PRIVATE KEY" in path.read_text()
    shown = read("AGENT_CA_FILE", AGENT_CA_FILE=str(path))
    assert shown.count("BEGIN") == 1 and shown.startswith("-----BEGIN CERTIFICATE-----") and shown in path.read_text()
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    long = authority.path.read_text() * 100
    for text, fault in (("", "no certificates in PEM"), (broken, "no certificates in PEM"), (long, "16384 bytes")):
        path.write_text(text)
        with pytest.raises(ImproperlyConfigured, match=fault):
            read("AGENT_CA_FILE", AGENT_CA_FILE=str(path))
    assert read("AGENT_CA_FILE") == ""


def test_nothing_is_wrong_with_the_settings_of_the_tests() -> None:
    assert [message for message in run_checks() if str(message.id).startswith("fleet.")] == []


def test_celery_gets_the_same_redis_in_its_own_spelling() -> None:
    assert broker("redis://cache:6379/0") == "redis://cache:6379/0"
    for socket in ("unix:///run/valkey.sock?db=0", "unix:///run/valkey.sock"):
        assert broker(socket) == "redis+socket:///run/valkey.sock?virtual_host=0"


def test_options_of_the_database_address_win_over_ours() -> None:
    found = database("postgresql://me:p%40ss@db:5433/drydock?sslmode=require&connect_timeout=9")
    assert found["PASSWORD"] == "p@ss"
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["connect_timeout"] == 9
    assert found["CONN_HEALTH_CHECKS"] is True
