"""Drydock's tests: real Postgres, real Valkey, real processes and our own simulator; no mocks."""
