"""Another simulator as the referee: what our simulator's routers chose, served again by Dynamo's workers."""
