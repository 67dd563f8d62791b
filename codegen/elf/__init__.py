"""Object files of the ELF format, read, merged and linked without any other tool."""
