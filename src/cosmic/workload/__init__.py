"""What runs: operators over tensors with named dimensions, sharded over a mesh, scheduled in time."""
