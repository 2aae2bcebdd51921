"""Three stateless hops as whole processes: in plain PySpark, in Tidemill, and in its peers."""
