"""Timelines as pictures: lanes drawn by the server as SVG."""
