"""The command line: each command parses its arguments, calls one function of the package and prints what it returns.

`dispatch` has the table of commands, which is all that `cosmic --help` needs, and `main`. A command's module is
imported when the command runs; modules of commands end in `_command` or `_commands`, and import what is heavy inside
functions. `console` is what commands print with, over `output_streams`; `exit_codes` lists what an exit status means.
`value_completion` and `completion_command` answer a shell at every TAB. `plain_arguments` reads plain command lines
without Typer's machinery. `recipes` are experiments written down as commands, and `recipe_steps` makes command lines of
their steps. The JSON Schemas of what --json prints are in `schemas/`. Read `dispatch` first.
"""
