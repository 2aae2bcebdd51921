"""Operations that remove what nothing needs any more, and compact what is kept."""
