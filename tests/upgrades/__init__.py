"""While a release is rolled out, what the release before has left, sends and runs keeps working.

`release_0_1` holds what 0.1.0 itself wrote: a small history in its database, the columns of its tables, everything that
an agent of it sent during one event, the spool and the credential of another, and a task that it handed to Celery.
"""
