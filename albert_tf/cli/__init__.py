"""What every command shares: flags, help, errors and exit codes."""
