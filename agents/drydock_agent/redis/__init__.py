"""The maintenance channel of caches. Imported only where a cache is configured."""
