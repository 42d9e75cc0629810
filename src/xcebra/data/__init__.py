"""A recording: activity and labels over time, in epochs, and how a label is described."""
