"""Views of the API: each parses its request, makes one call, and responds."""
