"""Wording of codes, numbers and times for people: shared by pages, the API and messages."""
