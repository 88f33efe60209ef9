"""The workload: operators over tensors with named dimensions, sharded over a mesh, scheduled on a pipeline."""
