"""The benchmark on real recordings: known cells, foreign neurons, noise and implants."""
