"""Single sign-on: who may come in by a provider of theirs. Nobody, as long as nothing says so."""

from typing import Any

from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.http import HttpRequest


class SignOnDoor(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Nobody becomes a person here by having an account elsewhere, and no account is linked by its mail address."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False
