"""All wording about answers: one catalogue of sentences for terminal, reports, pages and server."""
