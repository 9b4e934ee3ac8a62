"""Celery: tasks that call one operation."""
