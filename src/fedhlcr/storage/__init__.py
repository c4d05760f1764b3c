"""Bytes and files: one format for messages, private state, checkpoints and models, written completely or not at all."""
