"""How matplotlib draws each kind of chart."""
