"""The C API: `libcolibri` (plain C, found by `colibri-edge config --libs`) and the module whose functions it calls."""
