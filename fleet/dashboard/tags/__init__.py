"""What templates use beside Django's own: `{% load drydock %}`."""

from fleet.dashboard.tags import markup, words
from fleet.dashboard.tags.markup import register

__all__ = ["markup", "register", "words"]
