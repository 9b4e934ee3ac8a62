"""What requests and answers hold."""

# Before any other shape holds one of them.
from fleet.api.shapes import answers as answers
