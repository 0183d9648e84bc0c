"""The light client: agent, plan cache, transport, reporter. It carries no server, no Spark and no compiler."""
