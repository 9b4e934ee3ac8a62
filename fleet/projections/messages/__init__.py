"""Messages out, as people and channels see them."""
