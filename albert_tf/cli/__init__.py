"""Runs commands: flags, help texts, one-line errors, exit codes."""
