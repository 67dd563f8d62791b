"""Many machines by Ray: processes that answer questions, and models over data sets. The only owner of `ray`."""
