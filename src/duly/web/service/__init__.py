"""The verbs of the API and the pages: functions over a `Desk` that return plain data. One module per noun."""
