"""Schedules of collectives: checked, simulated, drawn, and read and written in the formats of other tools."""
