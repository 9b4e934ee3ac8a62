"""What Schemathesis does before each call of the search."""

import re
from typing import Any
from uuid import uuid4

import schemathesis

KEY = "Idempotency-Key"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Each call has a key of its own where it has a good one: the search writes the same one everywhere, and then all
    that is answered is that it belongs to another request.
    """
    key = (case.headers or {}).get(KEY)
    # Of cursors only those from `next` and `previous` are good, which no shape can say: an invented one is bad data.
    if case.meta is not None and case.meta.generation.mode.is_positive:
        (case.query or {}).pop("cursor", None)
    if isinstance(key, str) and re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", key):
        case.headers[KEY] = uuid4().hex
