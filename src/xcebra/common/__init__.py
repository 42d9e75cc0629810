"""Small helpers that know nothing of recordings: argument checks, files, progress, interrupts."""
