"""Linear attention, with and without decay, and the delta rule."""
