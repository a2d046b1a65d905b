"""Results for people: tables and plots. This room knows results and schemas, never a model."""
