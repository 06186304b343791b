"""Values inside values: variants, shredded or in one piece, and geometries."""
