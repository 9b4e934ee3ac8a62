"""Backend of Drydock."""
