"""Time as a picture: lanes drawn by the server as SVG."""
