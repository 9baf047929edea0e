"""How kernels are compiled: the only access to numba. Imports the contract."""
