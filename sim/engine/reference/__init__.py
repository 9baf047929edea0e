"""The engine that is written to be read, in SimPy. Imports the contract alone."""
