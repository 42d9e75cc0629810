"""From settings and a recording to a trained encoder, and how well it learned each label."""
