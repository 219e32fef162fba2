"""Routing policies, one small file each; ``router.registry`` lists them."""
