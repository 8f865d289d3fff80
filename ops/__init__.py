"""What people run: the command line and the programs behind it."""
