"""Who is served next, and what holds it up: orders, turns, rooms, pools. Imports core."""
