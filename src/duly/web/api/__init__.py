"""The JSON API: one table of routes, from which the OpenAPI document is made too."""
