"""How long a step of a design takes, and what the design then achieves.

Read `step_evaluation` first: it composes mapping rules, memory, profile and seconds into metrics (`metrics` lists
them all). The analytic engine (`analytic_step`) sums a step's profile in closed form, for a whole batch of designs at
once. The event engine (`events`) simulates execution traces node by node and message by message: recorded ones, or
those that `trace_generation` makes of a design. `recording` runs the analytic engine as a flat program, once it was
recorded for a structure of designs. `user_engines` holds engines that users bring.

README.md beside this file lists every module, and which of them other rooms may import.
"""
