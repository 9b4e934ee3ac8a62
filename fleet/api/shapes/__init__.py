"""Shapes: serializers of request bodies and responses."""

# First, before any other shape uses one of them.
from fleet.api.shapes import answers as answers
