"""The language server: what editors show of a `.tl` file, over the parser, the checker and the proofs that the command line uses."""
