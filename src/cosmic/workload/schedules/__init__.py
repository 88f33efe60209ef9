"""Pipeline schedules, one file each; `cosmic.workload.schedule.schedules` finds them here."""
