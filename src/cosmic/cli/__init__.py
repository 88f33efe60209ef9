"""The command line: each command parses its arguments, calls one function of the package and prints what it returns.

Read `dispatch` first: its table has every command, a noun and a verb or one word, with the module and function that
run it. A module is imported when its command runs, and imports what is heavy inside functions, so that help and plain
commands answer at once. `console` is what commands print with, over `output_streams`. An option of the panel
`console.MORE` is listed by --help-all only, so that --help fits a screen. `recipes` are experiments written down as
commands. Other rooms may import `dispatch.main` and `recipes.run_recipe`; README.md lists all modules.
"""
