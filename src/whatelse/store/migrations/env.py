"""Run by Alembic on the connection that `engine.migrate` hands over."""

from alembic import context

from whatelse.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
