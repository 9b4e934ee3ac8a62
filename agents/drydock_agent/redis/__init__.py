"""Notifications of maintenance of caches (Azure Cache for Redis). Imported only if a cache is configured."""
