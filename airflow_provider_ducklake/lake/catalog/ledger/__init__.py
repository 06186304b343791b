"""The provider's own tables in the catalog: commit keys, jobs, consumers, restores."""
