"""EASY without compiled code: what plans while the kernel compiles."""
