"""Schedules of collectives: checked, timed, drawn, and exchanged with other tools."""
