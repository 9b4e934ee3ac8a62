"""Settings by the owner of the machine: environment and TOML file, read once."""
