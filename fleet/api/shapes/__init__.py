"""What requests and answers hold."""
