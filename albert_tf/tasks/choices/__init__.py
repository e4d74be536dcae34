"""Questions with choices: RACE, SWAG, CODAH and own tables."""
