"""Where iterations begin."""
