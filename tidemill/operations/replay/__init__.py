"""Operations that compute rows again next to the live stream: backfill and rebuild."""
