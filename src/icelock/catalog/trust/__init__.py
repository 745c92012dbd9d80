"""What a catalog's word is held against: facts kept beside the location, pins, and what was seen before."""
