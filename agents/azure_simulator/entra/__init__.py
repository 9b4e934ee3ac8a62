"""A pretended Entra ID: an OpenID provider of one tenant, which can also lie."""
