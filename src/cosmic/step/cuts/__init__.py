"""Rules that cut layers into pipeline stages by what they take: one file each, registered in `cosmic.workload.pipeline_cut`."""
