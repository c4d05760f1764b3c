"""Tables larger than memory: events are read once, kept in a work folder, and sorted by entity there."""
