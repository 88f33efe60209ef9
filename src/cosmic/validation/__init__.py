"""How far predictions are off: measured rows, the designs they describe, and what the difference adds up to."""
