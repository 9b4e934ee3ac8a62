"""People on the pages: oneself, and for admins everybody."""
