"""The fleet's backend: reports out, orders in."""
