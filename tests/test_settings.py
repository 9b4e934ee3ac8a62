"""Settings: one table, the same in the documentation, read from variables or files, refused in plain sentences."""

import ast
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from fleet.checks import proxy_is_trusted
from fleet.configuration import SETTINGS, markdown
from fleet.embedded.parent_death import bound
from fleet.environment import Reader
from fleet.settings import broker, database
from tests.certificates import Authority
from tests.processes import PYTHON, ROOT

NAMES = {setting.name for setting in SETTINGS}


def test_the_documentation_holds_every_setting_with_its_default_and_no_other() -> None:
    text = (ROOT / "docs" / "admin" / "settings.md").read_text()
    assert markdown() in text, "run `manage.py print_docs`"
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)) == NAMES


def test_every_setting_in_the_table_is_read_once_and_no_other_is() -> None:
    tree = ast.parse((ROOT / "fleet" / "settings.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    read = [call for call in calls if re.match(r"read\.\w+$", ast.unparse(call.func))]
    assert {call.args[0].value for call in read if isinstance(call.args[0], ast.Constant)} == NAMES


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


def test_a_file_holds_a_value_and_wins(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from the file\n")
    read = Reader({"SECRET_KEY": "from the variable", "SECRET_KEY_FILE": str(path)})
    assert read.text("SECRET_KEY") == "from the file"


def test_a_former_name_is_read_where_the_present_one_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "tag"
    path.write_text("set\n")
    read = Reader({"TICKER_SECONDS": "7", "SET_TAG_FILE": str(path)})
    assert read.seconds("FALLBACK_TICK_SECONDS") == 7 and read.text("AVAILABILITY_SET_TAG") == "set"
    assert {setting.former for setting in read.under_former_names} == {"TICKER_SECONDS", "SET_TAG"}
    both = Reader({"TICKER_SECONDS": "7", "FALLBACK_TICK_SECONDS": "8"})
    assert both.seconds("FALLBACK_TICK_SECONDS") == 8 and both.under_former_names == []


def test_an_empty_variable_counts_as_not_set() -> None:
    assert Reader({"MACHINE_LIVE_SECONDS": "", "MACHINE_LATE_SECONDS_FILE": ""}).seconds("MACHINE_LIVE_SECONDS") == 60


@pytest.mark.parametrize(
    ("name", "value", "read", "sentence"),
    [
        ("MACHINE_LIVE_SECONDS", "soon", Reader.seconds, "has to be a number of seconds above zero, not 'soon'."),
        ("MACHINE_LIVE_SECONDS", "nan", Reader.seconds, "has to be a number of seconds above zero, not 'nan'."),
        ("PORT", "0", Reader.whole, "has to be a whole number above zero, not '0'."),
        ("DEBUG", "maybe", Reader.flag, "has to be `yes` or `no`, not 'maybe'."),
        ("SECRET_KEY_FILE", "/nowhere/key", lambda read, _: read.text("SECRET_KEY"), "names /nowhere/key, which"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence(
    name: str, value: str, read: Callable[[Reader, str], object], sentence: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=re.escape(f"{name} {sentence}")):
        read(Reader({name: value}), name)


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


def test_where_messages_may_go_is_checked_before_one_is_sent() -> None:
    read = Reader({"EGRESS_ALLOWLIST": "10.1.0.0/16, fd00::/8", "EGRESS_PROXY": "[fd00::1]:3128", "PORT": "1"})
    assert read.networks("EGRESS_ALLOWLIST") == ["10.1.0.0/16", "fd00::/8"]
    assert read.host_and_port("EGRESS_PROXY") == "[fd00::1]:3128"
    assert Reader({"EGRESS_PROXY": "proxy.example:3128"}).host_and_port("EGRESS_PROXY") == "proxy.example:3128"
    assert Reader({}).host_and_port("EGRESS_PROXY") == ""
    # A URL set by mistake may contain a password, so the error does not repeat it.
    for value in ("http://ann:secret@proxy:3128", "ann:secret@proxy:3128", "proxy", "proxy:0", "proxy:70000", "::1:80"):
        with pytest.raises(ImproperlyConfigured, match=r"^EGRESS_PROXY has to be host:port, without a scheme"):
            Reader({"EGRESS_PROXY": value}).host_and_port("EGRESS_PROXY")
    with pytest.raises(ImproperlyConfigured, match=r"^EGRESS_ALLOWLIST has to hold addresses or networks"):
        Reader({"EGRESS_ALLOWLIST": "inside"}).networks("EGRESS_ALLOWLIST")
    with pytest.raises(ImproperlyConfigured, match=r"^EGRESS_CA_FILE names /nowhere/ca\.pem, which cannot be read"):
        Reader({"EGRESS_CA_FILE": "/nowhere/ca.pem"}).readable_file("EGRESS_CA_FILE")


def test_only_certificates_of_a_file_are_shown_to_machines(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("localhost")
    path = tmp_path / "localhost.pem"
    read = Reader({"AGENT_CA_FILE": str(path)})
    assert "PRIVATE KEY" in path.read_text()
    shown = read.certificates("AGENT_CA_FILE")
    assert shown.count("BEGIN") == 1 and shown.startswith("-----BEGIN CERTIFICATE-----") and shown in path.read_text()
    for text in ("", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"):
        path.write_text(text)
        with pytest.raises(ImproperlyConfigured, match="holds no certificates in PEM"):
            read.certificates("AGENT_CA_FILE")
    path.write_text(authority.path.read_text() * 100)
    with pytest.raises(ImproperlyConfigured, match="more than 16384 bytes"):
        read.certificates("AGENT_CA_FILE")
    assert Reader({}).certificates("AGENT_CA_FILE") == ""


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
