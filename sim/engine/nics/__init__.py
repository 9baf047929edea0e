"""What NICs post, give engines to and push. Imports core."""
