"""Routing quality: every contender before the same simulated replicas, with the same requests at the same times."""
