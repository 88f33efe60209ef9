"""How long a step of a design takes, and what the design then achieves.

Two engines answer. The analytic engine (`analytic_step`) sums a step's profile in closed form, for a whole batch of
designs at once. The event engine (`events`) simulates execution traces node by node and message by message: recorded
ones, or those that `trace_generation` writes for a design. Engines that users bring are in `user_engines`.

Read `step_evaluation` first: it composes mapping rules, memory, profile and seconds into metrics (`metrics` lists them
all). `recording` records that evaluation once for each structure of designs and runs it as a flat program.
`schedule_timeline` and `events.simulation_timeline` draw a step; `step_timeline` is the value that both return.
"""
