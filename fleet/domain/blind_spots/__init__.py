"""Where Drydock would not see what Azure announces, and how sure that is.

Sources: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023; "possible" where issue threads say
otherwise than that page.
"""
