"""The folders that training runs leave: read, measured, compared and drawn. Never imports torch."""
