"""The explorer: a page on which the schedule of an operator is edited, with its verdict, loops, picture, code and times beside it."""
