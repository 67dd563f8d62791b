"""The directives: what each rewrites, and what it refuses. `table` lists them."""
