"""Chaos: whole exchanges under a controlled schedule and a virtual clock, with one or two faults at a scheduler step, and what must hold after each."""
