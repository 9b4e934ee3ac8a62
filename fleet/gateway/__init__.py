"""The agents' edge: reports in, orders out, streams to browsers."""
