"""Dynamo's own selection service as a policy of the simulator: the real code chooses, in a child process."""
