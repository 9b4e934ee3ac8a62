"""Words of messages out: the decision card as text, in a channel's zone and in UTC, and short for pagers.

They are plain text, each a line of its own: how a channel marks it up, and what it has to escape, is the channel's.
"""

from fleet.wording.messages.data import event_data
from fleet.wording.messages.digest import group_words
from fleet.wording.messages.one import message_words, test_words
from fleet.wording.messages.words import MessageWords, is_command, path_of

__all__ = ["MessageWords", "event_data", "group_words", "is_command", "message_words", "path_of", "test_words"]
