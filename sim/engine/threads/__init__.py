"""One run on several threads. Imports the loop."""
