#!/usr/bin/env python
"""Django's command line under its usual name; `drydock-fleet` is the same."""

from fleet.__main__ import main

if __name__ == "__main__":
    main()
