"""One page with the curves of one or several runs, which may still be going on."""
