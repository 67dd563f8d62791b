"""What the command line needs besides the compiler: arguments, files, progress, measurements, a check-up of the machine."""
