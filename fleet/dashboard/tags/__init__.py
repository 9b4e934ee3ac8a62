"""What templates use beside Django's own: `{% load drydock %}`."""

from fleet.dashboard.tags import markup, words
from fleet.dashboard.tags.library import register

__all__ = ["markup", "register", "words"]
