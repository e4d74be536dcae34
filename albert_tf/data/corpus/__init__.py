"""Reading text of any form as documents of sentences."""
