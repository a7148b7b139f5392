"""Chat templates: loaded from files and engines, rendered in a process of their own, probed, told to the fleet."""
