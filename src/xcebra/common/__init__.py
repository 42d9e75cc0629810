"""General helpers, independent of recordings: argument checks, files, progress, interrupts."""
