"""What a step is made of: operators, collectives and memory, with the seconds that each takes."""
