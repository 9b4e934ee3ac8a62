"""What the core shows of accounts, registered when the app is loaded."""

from fleet.accounts import models, text
from fleet.projections import visibility
from fleet.projections.visibility import everything
from fleet.wording import say

say.register(text)
# Administrators see all accounts, everyone their own: the queries filter.
visibility.register(
    {
        models.PersonSession: everything,
        models.SignOn: everything,
        models.SignOnGrant: everything,
    }
)
