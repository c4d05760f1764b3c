"""Bytes and files: one format for messages, private state, checkpoints and models, written whole or not at all."""
