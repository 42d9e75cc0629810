"""Compute attribution maps from trained networks, and test which neurons are connected."""
