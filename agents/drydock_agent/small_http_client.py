"""Imports `requests` without its optional package for detecting text encodings.

That package uses 3 MB of memory, and the agent never needs it, because it reads all bodies as bytes. If it or
`requests` is already imported, this module changes nothing.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import cast

_CHARSET_DETECTORS = [name for name in ("chardet", "charset_normalizer") if name not in sys.modules]

with warnings.catch_warnings():
    # `requests` warns that the detector is missing.
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
