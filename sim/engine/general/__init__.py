"""The loop that runs any program. Imports compile."""
