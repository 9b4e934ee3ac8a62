"""What requests and answers hold."""

# Before any other shape holds one of them.
from fleet.api.shapes import refs as refs
