"""Settings from the environment and a TOML file, read once at start."""
