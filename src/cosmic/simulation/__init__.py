"""When: from work and traffic to the seconds of a step."""
