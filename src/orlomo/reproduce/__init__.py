"""What the paper states, measured again: theorem, delays, speed-up."""
