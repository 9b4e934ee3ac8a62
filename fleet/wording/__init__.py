"""Texts for users: codes, numbers and times as words, shared by pages, the API and notifications."""
