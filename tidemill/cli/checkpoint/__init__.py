"""The command `tidemill checkpoint`."""
