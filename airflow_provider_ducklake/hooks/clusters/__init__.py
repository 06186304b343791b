"""How the managers of Spark clusters are asked about applications."""
