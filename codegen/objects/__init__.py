"""Compiled programs as files for other people's harnesses and emulators: code, constants, descriptions."""
