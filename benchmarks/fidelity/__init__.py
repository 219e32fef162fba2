"""How near the simulator is to real engines and to another simulator."""
