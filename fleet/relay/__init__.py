"""Celery tasks. Each task calls one operation."""
