"""What the core shows of the audit, registered when the app is loaded."""

from fleet.audit import models, text
from fleet.projections import visibility
from fleet.projections.visibility import everything
from fleet.wording import say

say.register(text)
# Lines of the archive are filtered by the visibility of what they are about.
visibility.register({models.ArchiveFile: everything, models.ArchiveState: everything})
