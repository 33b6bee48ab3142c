"""How checkpoints store quantised weights: one module for each quant_method, none of it motley's code."""
