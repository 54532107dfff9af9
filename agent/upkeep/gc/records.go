package gc
