"""Where it runs: Ray, run directories, journals, engines. Imports `sentinel`, never `jobs`."""
