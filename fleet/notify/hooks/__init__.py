"""What comes back from channels: signed calls of Slack and PagerDuty, each of which may claim an event.

Whatever is not signed with the channel's own secret is answered 401, whether there is such a channel or not.
"""
