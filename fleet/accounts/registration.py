"""Registers the functions of this app that the core calls. It is imported when the app is loaded."""

from fleet.accounts import models, queries, text, tokens
from fleet.operations.access import CREDENTIALS
from fleet.projections import visibility
from fleet.projections.visibility import everything
from fleet.wording import say

say.register(text)
CREDENTIALS.person_of_token = tokens.person_of_token
CREDENTIALS.person_of_session = tokens.person_of_session
CREDENTIALS.states = queries.access_states
# Administrators see all accounts, other users their own: the queries filter.
visibility.register(dict.fromkeys((models.PersonSession, models.SignOn, models.SignOnGrant), everything))
