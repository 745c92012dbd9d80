"""From rows to data files: conform, split by partition, encode, and measure."""
