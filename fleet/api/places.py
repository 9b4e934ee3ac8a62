"""What the filters that many lists have mean."""

PLACES = {
    "service": "The name of a service, exactly; may be repeated.",
    "subscription": "A subscription, in any case; may be repeated.",
    "resource_group": "A resource group, in any case; may be repeated.",
    "set": "The id of a set; may be repeated. Sets that were merged into it count.",
    "set_name": "The name of a set, in any case; may be repeated.",
}
MACHINES = {
    "machine": "The id of a machine; may be repeated.",
    "machine_name": "The resource name of a machine, in any case; may be repeated.",
}
# A cache is where those are who listen to it.
OF_A_CACHE = {name: f"{text} Caches to which a machine there listens." for name, text in {**PLACES, **MACHINES}.items()}
CHANGED_SINCE = "Changed at or after this time, as `changed_at` of the rows has it."
