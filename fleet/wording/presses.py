"""What somebody is told, and nobody else, who pressed *Claim* in a chat. Only the link of our own stays one."""

from fleet.wording.formats import without_links


def claimed(person: str) -> str:
    """It is theirs."""
    return f"You are on it, as {without_links(person)}. Whether to approve it, you decide on its page."


def refused(sentence: str) -> str:
    """Why nothing was claimed."""
    return f"Nothing was claimed. {without_links(sentence)}"


def stranger(account: str, address: str) -> str:
    """Whose account nobody has said."""
    return (
        "Nothing was claimed: Drydock does not know who you are. Open this within 10 minutes, log in, and say that this"
        f" account is yours; the link is for you alone: {address} An admin can do it as well: your member id is"
        f" {without_links(account)}."
    )
