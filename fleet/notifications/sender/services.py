"""Apprise jobs: send to any service that Apprise supports over the network, under the same guard.

This module is imported for the first Apprise job only, because Apprise uses more than half of the process's memory.
"""

import logging
from dataclasses import replace
from ssl import SSLContext
from typing import Any

import requests
from apprise import Apprise, AppriseAsset, NotifyBase, NotifyFormat, NotifyType
from apprise.plugins import url_to_dict
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from fleet.notifications.formats import for_chat
from fleet.notifications.sender.guard import Guard
from fleet.notifications.sender.jobs import Answer, AppriseJob, SendError
from fleet.notifications.sender.transports import KEPT_HEADERS, what_failed

# Services over HTTP or SMTP. Excluded: those that write files or logs, use the screen of this machine, send packets,
# keep connections open, or publish to the world.
SCHEMA_NAMES = """
46elks apprise apprises atalk bark barks betterstack brevo bulksms bulkvs burstsms clickatell clicksend cliq d7sms
dapnet dingtalk discord exotel feishu firehydrant flock form forms freemobile gchat goalert goalerts gotify gotifys
guilded gupshup hassio hassios httpsms humhub humhubs ifttt ilert incidentio infobip jira join json jsons kavenegar
klr kudosity lark line mailersend mailgun mailto mailtos matrix matrixs mmost mmosts msg91 msgbird ncloud nclouds
nctalk nctalks nexmo notica noticas notifiarr ntfy ntfys o365 octopush onesignal opsgenie pagerduty pagertree pbul
plivo postmark pover prowl psafer psafers push pushdeer pushdeers pushed pushy resend ringc rocket rockets ryver schan
sendgrid sendpulse serwersms ses seven signal signals signl4 simplepush sinch slack smseagle smseagles smsmanager
smsmgr smtp2go sns sparkpost spike splunk spush squadcast stackfield synology synologys telesign telnyx tgram threema
twilio twist victorops voipms vonage webex wecombot whatsapp workflow workflows wxteams xmatters xml xmls zcliq
zohocliq zoom zulip
"""
SCHEMAS = frozenset(SCHEMA_NAMES.split())
# Services that pass the message to programs, without markup.
PROGRAMS = frozenset({"form", "forms", "json", "jsons", "splunk", "xml", "xmls"})
# Parameters for receiver, sender, credentials and appearance. Excluded: those that disable certificate checks, follow
# redirects, wait, retry, or name files.
PARAMETER_NAMES = """
access action alerting_scenario alias api-version apikey app app_id app_token auth avatar avatar_url bcc blocks
botname call category cc channel channels click color company content dedup email emojis entity entity_id env expire
external_id fields filtering flags footer format from group href icon icon_url id image key level location method mode
name nid optional overflow pa ping policy powerautomate prefix preview priority profile region reply retain_tags route
routeid routing_key schema secret service sid sig signature silent smtp sound source status subtitle tag tags team
team_wait thread timestamp title to token topic ttl type unicode url url_title user ver version visibility volume
webhook workspace wrap
"""
PARAMETERS = frozenset(PARAMETER_NAMES.split())
MOST_BYTES = 65536


class NotTaken(ValueError):
    """The URL has a schema or parameter that is not permitted, or Apprise rejects it."""


class Warnings(logging.Handler):
    """Log handler that collects Apprise's warnings for the answer. For services without HTTP there is no other
    information.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Watch:
    """Replacement for the HTTP calls that Apprise makes: no redirects, checked certificates, limited responses. It
    records the responses, because Apprise only returns whether they succeeded.
    """

    def __init__(self, tls: SSLContext, proxy: str) -> None:
        self.tls = tls
        self.proxies = dict.fromkeys(("http", "https"), f"http://{proxy}") if proxy else {}
        self.answers: list[Answer] = []
        self.errors: list[BaseException] = []

    def send(self, session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        session.mount("https://", Adapter(self.tls))
        session.trust_env = False
        options |= {"allow_redirects": False, "stream": True, "verify": True, "proxies": self.proxies}
        try:
            response = SEND(session, request, **options)
            body = response.raw.read(MOST_BYTES + 1, decode_content=True) or b""
            response.close()
        except HTTPError as error:
            self.errors.append(error)
            raise requests.ConnectionError(error, request=request) from error
        except requests.RequestException as error:
            self.errors.append(error)
            raise
        response._content = body[:MOST_BYTES]
        self.answers.append(
            Answer(
                ok=response.ok,
                status=response.status_code,
                headers={k.lower(): v for k, v in response.headers.items() if k.lower() in KEPT_HEADERS},
                body=body[:MOST_BYTES].decode("utf-8", "replace"),
                cut=len(body) > MOST_BYTES,
            )
        )
        return response


class Adapter(HTTPAdapter):
    """HTTP adapter that uses the same certificate authorities as all other jobs."""

    def __init__(self, tls: SSLContext) -> None:
        self.tls = tls
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self.tls)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        return super().proxy_manager_for(*args, **options, ssl_context=self.tls)


SEND = requests.Session.send


def perform(job: AppriseJob, *, guard: Guard, proxy: str, tls: SSLContext) -> Answer:
    """Send the notification and return the answer. Failures are in the answer."""
    warnings, watch = Warnings(), Watch(tls, proxy)
    logger = logging.getLogger("apprise")
    logger.addHandler(warnings)

    def send(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return watch.send(session, request, **options)

    requests.Session.send = send  # type: ignore[method-assign,assignment]
    try:
        service = service_of(job.url)
        ok = sent(service, job, schema=url_to_dict(job.url)["schema"])  # type: ignore[no-untyped-call]
    except NotTaken as problem:
        return Answer(ok=False, error=SendError.BAD_URL, reason=str(problem))
    finally:
        requests.Session.send = SEND  # type: ignore[method-assign]
        logger.removeHandler(warnings)
    return answer_of(ok, warnings, watch, guard)


def service_of(url: str) -> NotifyBase:
    """Return Apprise's service object for a URL, after checking that the URL is permitted. The same object is used for
    sending. Raises NotTaken.
    """
    parts = url_to_dict(url)  # type: ignore[no-untyped-call]
    if not parts:
        raise NotTaken("unknown_service")
    if parts["schema"] not in SCHEMAS:
        raise NotTaken("schema")
    if set(parts.get("qsd", {})) - PARAMETERS:
        raise NotTaken("parameter")
    asset = AppriseAsset(
        app_id="Drydock", app_desc="Drydock", async_mode=False, http_redirects=False, service_timeout=0,
        storage_mode="memory", pgp_autogen=False, pem_autogen=False, allow_templates=False,
    )  # fmt: skip
    service = Apprise.instantiate(parts, asset=asset)
    if service is None:
        raise NotTaken("incomplete")
    service.verify_certificate = True
    service.redirects = False
    return service


def sent(service: NotifyBase, job: AppriseJob, *, schema: str) -> bool:
    """Send the notification. Return whether the service accepted it."""
    shown = str if schema in PROGRAMS else for_chat
    body = "\n".join(part for part in (shown(job.body), job.verbatim) if part)
    apprise = Apprise(service, asset=service.asset)
    return bool(apprise.notify(body, shown(job.title), NotifyType(job.tone), body_format=NotifyFormat.TEXT))


def answer_of(ok: bool, warnings: Warnings, watch: Watch, guard: Guard) -> Answer:
    """Return the answer from the service's last HTTP response, or without one from Apprise's warnings."""
    words = "\n".join(warnings.lines)
    if not watch.answers:
        error = SendError.NONE
        if not ok:
            error = what_failed(watch.errors[-1]) if watch.errors else SendError.NO_ANSWER
        return Answer(ok=ok, body=words, error=SendError.REFUSED_ADDRESS if guard.refused and not ok else error)
    last = watch.answers[-1]
    if ok or guard.refused:
        return replace(last, ok=ok, error=SendError.NONE if ok else SendError.REFUSED_ADDRESS)
    redirect = last.status is not None and 300 <= last.status < 400
    return replace(
        last, ok=False, error=SendError.REDIRECT if redirect else SendError.STATUS, answer=last.body or words
    )
