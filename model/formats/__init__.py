"""Both file formats, and all that is read from outside: from text to values and back."""
