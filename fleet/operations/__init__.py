"""Operations: the only code that writes to the database. Each function takes the current time as `now`."""
