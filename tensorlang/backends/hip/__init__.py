"""The back end for AMD's graphics processors: HIP text, which nothing runs yet."""
