"""A strict reader of DER: one way to write each value, and nothing behind it.

Libraries that also read BER let two programs see two things in the same bytes. This one refuses whatever has a second
form: lengths that are indefinite or longer than they need be, strings in pieces, tags of several bytes.
"""

from dataclasses import dataclass

SEQUENCE, SET, INTEGER, OCTETS, NULL, OID = 0x30, 0x31, 0x02, 0x04, 0x05, 0x06
CONSTRUCTED = 0x20
# As deep as anything is that is read here, with room.
MOST_DEPTH = 16


class NotDer(ValueError):
    """The bytes are not DER, or not in the shape that was asked for."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes

    def parts(self, tag: int | None = None) -> list["Value"]:
        """The values within. Raises NotDer where it has another tag than this one."""
        if tag is not None and self.tag != tag:
            raise NotDer(f"tag {self.tag:#x} where {tag:#x} belongs")
        found, rest = [], self.content
        while rest:
            value, rest = _first(rest)
            found.append(value)
        return found

    def of(self, tag: int) -> bytes:
        """The content. Raises NotDer where it has another tag."""
        if self.tag != tag:
            raise NotDer(f"tag {self.tag:#x} where {tag:#x} belongs")
        return self.content

    @property
    def number(self) -> int:
        """An INTEGER. Raises NotDer."""
        raw = self.of(INTEGER)
        if not raw or (len(raw) > 1 and (raw[0] == 0) == (raw[1] < 0x80) and raw[0] in (0, 0xFF)):
            raise NotDer("an integer that is longer than it need be")
        return int.from_bytes(raw, "big", signed=True)


def read(raw: bytes) -> Value:
    """The one value that these bytes are, down to its last part. Raises NotDer."""
    value, rest = _first(raw)
    if rest:
        raise NotDer("something stands behind it")
    _walk(value, 0)
    return value


def _walk(value: Value, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise NotDer("too deep")
    if value.tag & CONSTRUCTED:
        # Of the types that are known here, only these two consist of others.
        if value.tag < 0x80 and value.tag not in (SEQUENCE, SET):
            raise NotDer(f"tag {value.tag:#x}: in pieces")
        for part in value.parts():
            _walk(part, depth + 1)
    elif value.tag in (SEQUENCE & ~CONSTRUCTED, SET & ~CONSTRUCTED):
        raise NotDer(f"tag {value.tag:#x}: no parts")


def _first(raw: bytes) -> tuple[Value, bytes]:
    if len(raw) < 2:
        raise NotDer("cut short")
    tag, length, begin = raw[0], raw[1], 2
    if tag & 0x1F == 0x1F or tag == 0:
        raise NotDer(f"tag {tag:#x}")
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= 3:
            raise NotDer("a length that is indefinite or too large")
        begin += count
        written = raw[2:begin]
        length = int.from_bytes(written, "big")
        if len(written) < count or written[0] == 0 or length < 0x80:
            raise NotDer("a length that is longer than it need be")
    end = begin + length
    if end > len(raw):
        raise NotDer("cut short")
    return Value(tag, raw[begin:end], raw[:end]), raw[end:]
