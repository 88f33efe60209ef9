"""What every other room stands on: errors, files, quantities, arrays, registries. It knows nothing of machine learning.

    errors               one sentence per mistake: where = value: the rule
    files                every file is read and written here, whole or not at all
    units                strings with units in files, SI numbers inside
    numeric              functions that take a number, or an array with one number for each design of a batch
    registry             named variants (topologies, collectives, agents): a file each, by package and entry point
    expression_syntax    expressions in files as trees; nothing is executed
    caching              what processes keep on disk for later ones, by the digest of the sources
    event_clock          the clock of all discrete-event simulations
    timelines            who did what from when until when, as Perfetto reads it
    graphs               orders and distances of nodes
    native               inner loops in C, which nothing needs

Read errors and units first. Nothing here imports from another room.
"""
