"""Pictures of iteration spaces, drawn from the plan that a schedule makes: instances, tiles, dependences, order, threads, lanes."""
