"""The only code that writes. One file per life; every function takes its time as `now=`."""
