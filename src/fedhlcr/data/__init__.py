"""From a table to a hierarchy: files, columns, ids, checks, and agent → entity → event."""
