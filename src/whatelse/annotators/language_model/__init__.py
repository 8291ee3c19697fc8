"""A language model as an annotator: it reads records and votes on conditions. Needs the extra `llm` (httpx)."""
