"""Program of the Windows service.

The service control manager starts it with the Python of the machine and the options `-I -S`: the `python.exe` of a
virtual environment would start another process, which Windows does not accept as the service. Therefore this file adds
the packages of the environment in which it lies.
"""

import site
from pathlib import Path

if __name__ == "__main__":
    site.addsitedir(str(Path(__file__).resolve().parents[1]))
    from drydock_agent import windows_service

    windows_service.host()
