"""Where the tags and filters of the templates are registered."""

from django.template import Library

register = Library()

# Where nothing is known.
DASH = "\N{EN DASH}"
