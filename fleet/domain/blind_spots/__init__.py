"""Blind spots: places where Drydock would not see Azure's announcements, and their certainty.

Sources: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023; "possible" where issue threads
contradict that page.
"""
