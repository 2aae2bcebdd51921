"""Operations that edit the records of a stream and compute no rows."""
