"""Pipeline schedules, one file each; `cosmic.workload.pipeline_schedule.schedules` finds them here."""
