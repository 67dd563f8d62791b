"""What to write in the place of a directive that is refused: found by trying, and told only when it is proven."""
