"""The communication between an operator and its Spark job: requests, results, errors, files."""
