"""Pages of lists."""

from functools import cache
from typing import Any

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers


@cache
def page_of(shape: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """The shape of one page, for the schema."""
    name = f"{shape.__name__.removesuffix('Serializer')}Page"
    return inline_serializer(
        name,
        {
            "next": serializers.URLField(allow_null=True, help_text="The address of the next page."),
            "previous": serializers.URLField(allow_null=True, help_text="The address of the page before."),
            "results": shape(many=True),
        },
    )
