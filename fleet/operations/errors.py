"""How an operation refuses."""

from typing import Any


class Refused(Exception):
    """Nothing was written. `code` is a problem type, `sentence` tells people what to do, `details` goes along as
    JSON.
    """

    def __init__(self, code: str, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.details = details
