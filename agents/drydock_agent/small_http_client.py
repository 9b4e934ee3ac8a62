"""`requests`, imported without its optional detector of text encodings.

The detector costs 3 MB on every machine, and the agent never needs it: all bodies are read as bytes. Where other code
has already imported it, or `requests` itself, this changes nothing.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import cast

_CHARSET_DETECTORS = [name for name in ("chardet", "charset_normalizer") if name not in sys.modules]

with warnings.catch_warnings():
    # It warns that it found none.
    warnings.simplefilter("ignore")
    for _name in _CHARSET_DETECTORS:
        # None is how Python itself marks a module that must not be imported.
        sys.modules[_name] = cast(ModuleType, None)
    try:
        import requests
        import requests.adapters
    finally:
        for _name in _CHARSET_DETECTORS:
            del sys.modules[_name]

__all__ = ["requests"]
