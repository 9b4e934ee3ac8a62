"""Blind spots: situations in which Drydock would not see Azure's announcements, and how certain this is.

Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023. "Possible" where reports of users
contradict that page.
"""
