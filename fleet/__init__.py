"""Drydock's backend: the fleet's maintenance desk for Azure."""
