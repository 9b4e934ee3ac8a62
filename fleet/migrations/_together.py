"""Operations of migrations: independent ones in one step, and indexes that may be there in half."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db.migrations.operations.base import Operation


class Together(Operation):
    """Django renders the models once instead of after each operation. That takes seconds, and tables that an earlier
    operation has locked would wait for it.
    """

    reversible = False

    def __init__(self, *operations):
        self.operations = operations

    def state_forwards(self, app_label, state):
        if "apps" in vars(state):
            del state.apps
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self):
        return f"{len(self.operations)} operations"


class AddIndexAgain(AddIndexConcurrently):
    """An index that is built again where an earlier try was interrupted and left half of it."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        schema_editor.remove_index(to_state.apps.get_model(app_label, self.model_name), self.index, concurrently=True)
        super().database_forwards(app_label, schema_editor, from_state, to_state)
