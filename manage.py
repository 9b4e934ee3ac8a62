#!/usr/bin/env python
"""Django's command line, for whoever looks for it under this name; it is that of `drydock-fleet`."""

from fleet.__main__ import main

if __name__ == "__main__":
    main()
