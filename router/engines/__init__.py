"""What each inference engine calls its own load: versioned tables of metric names, and their reader."""
