"""What back ends for graphics processors share: kernels become launches and C text, models a plan of launches."""
