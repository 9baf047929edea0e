"""Times without events: lower bounds that no run undercuts, and alpha-beta estimates."""
