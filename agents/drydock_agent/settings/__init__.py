"""What the owner of the machine wants: environment and TOML file, read once."""
