"""Operations that start a new generation from another position."""
