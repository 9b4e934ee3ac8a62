"""The keys that sign orders."""

from django.db import models


class SigningKey(models.Model):
    """An Ed25519 key. `public_key` is base64; `private_key` its private half, encrypted with the SECRET_KEY.

    `key_id` is the start of the SHA-256 (hex) of the public half. `introduced_by` is the key that signed the news of
    this one, with `introduction` as its signature; both are empty for the first. From `retires_at` on it signs no more:
    `retirement` is the signature of `retired_by` over that news.
    """

    key_id = models.TextField(unique=True)
    public_key = models.TextField()
    private_key = models.TextField()
    made_at = models.DateTimeField()
    introduced_by = models.TextField(blank=True, default="")
    introduction = models.TextField(blank=True, default="")
    retires_at = models.DateTimeField(null=True, blank=True)
    retired_by = models.TextField(blank=True, default="")
    retirement = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return self.key_id
