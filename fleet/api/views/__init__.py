"""Views of the API. Each validates its request, calls one operation or read model, and returns the response."""
