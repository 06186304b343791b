"""What a commit is: changes, their record, their conflicts; imports nothing but the standard library."""
