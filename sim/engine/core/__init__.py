"""What every run has: the calendar, tasks, lines at servers, nodes. Imports compile."""
