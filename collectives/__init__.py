"""What must move, in order: collectives, the schedules that do them, and their proof."""
