"""A simulated Entra ID: an OpenID provider with one tenant, which can also return wrong tokens on request."""
