"""Timeline pictures: lanes drawn on the server as SVG."""
