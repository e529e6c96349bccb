"""Jobs in SQL tables: operations as generators, and the databases that run them."""
