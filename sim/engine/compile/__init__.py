"""How kernels are compiled: the only access to the compiler. Imports the contract."""
