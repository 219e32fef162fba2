"""The fleet file: what stands where, who may use it and what was promised."""
