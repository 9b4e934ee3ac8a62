"""Web push channel: notifications encrypted for one browser (RFC 8291) and signed with the installation's key (RFC
8292).

The push services of browser vendors cannot read them. A click opens a page; notifications have no action buttons.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_private_key
from django.conf import settings
from django.utils.http import urlsafe_base64_decode
from py_vapid import Vapid02

from fleet.notifications.channels import KINDS, ChannelKind, Setting, validate_url
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome, outcome_of
from fleet.notifications.route_services import push_keys
from fleet.notifications.sender.jobs import HttpJob, SendError
from fleet.notifications.sender.pool import send as send_job

KINDS["webpush"] = ChannelKind(
    "Phone or browser",
    "A notification on a device of your own, made by a button on that device.",
    "smartphone",
    {"endpoint": Setting(validators=[validate_url]), "p256dh": Setting("public key"), "auth": Setting("secret")},
    secrets=frozenset({"endpoint", "p256dh", "auth"}),
    personal=True,
)
# Push services accept 4,096 bytes, of which 103 are the encryption.
MOST_BYTES = 3993
# The subscription has ended: the browser or its user revoked it.
GONE = frozenset({404, 410})


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send one notification. It replaces an earlier one about the same subject."""
    values = channel.values
    try:
        body = encrypted(payload(post), values)
    except ValueError:
        # No point on the curve, or no base64: it was never a subscription.
        return Outcome(ok=False, error=SendError.BAD_JOB.value, gone=True)
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Encoding": "aes128gcm",
        # So many seconds push services keep it for an offline device; later it would be outdated.
        "TTL": "900",
        "Urgency": "high",
        **signed(str(values["endpoint"]), now=now),
    }
    return outcome_of(send_job(HttpJob("POST", str(values["endpoint"]), headers, body), now=now), gone=GONE)


def payload(post: Delivery) -> bytes:
    """Return the data for the service worker: title, lines, link, and the tag of the notification to replace. The size
    is limited.
    """
    words, tag = post.words, f"drydock-{post.items[0].news.subject if len(post.items) == 1 else post.moment}"[:100]
    lines = list(words.lines)
    while True:
        shown = {"title": words.title[:200], "body": "\n".join(lines), "url": words.path, "tag": tag}
        encoded = json.dumps(shown, ensure_ascii=False).encode()
        if len(encoded) <= MOST_BYTES:
            return encoded
        # Drop the last line, or half of the only one.
        lines = lines[:-1] if len(lines) > 1 else [lines[0][: len(lines[0]) // 2]]


def encrypted(content: bytes, values: Mapping[str, Any]) -> bytes:
    """Encrypt the content for the browser whose keys are in `values`. Raises ValueError if the keys are invalid."""
    try:
        body: bytes = http_ece.encrypt(
            content,
            private_key=ec.generate_private_key(ec.SECP256R1()),
            dh=urlsafe_base64_decode(values["p256dh"]),
            auth_secret=urlsafe_base64_decode(values["auth"]),
            version="aes128gcm",
        )
    except http_ece.ECEException as error:
        raise ValueError(str(error)) from None
    return body


def signed(endpoint: str, *, now: datetime) -> dict[str, str]:
    """Return the headers that identify this installation to the push service at `endpoint`. They are valid for 12
    hours.
    """
    parts = urlsplit(endpoint)
    private = load_der_private_key(push_keys(now=now).private, password=None)
    contact = settings.BASE_URL if settings.BASE_URL.startswith("https://") else "mailto:drydock@localhost.localdomain"
    # Created for each call, because signing modifies it.
    ends = int((now + timedelta(hours=12)).timestamp())
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": ends, "sub": contact}
    headers: dict[str, str] = Vapid02(private_key=private).sign(claims)
    return headers
