"""Sending: one job at a time in a process of its own, which connects to nothing that the address guard refuses.

`pool` is the side of whoever sends, `jobs` what goes to and fro, `process` the other side with one module for each kind
of job. Nothing of the other side imports Django or the settings: there are no secrets but those of the job in hand.
"""
