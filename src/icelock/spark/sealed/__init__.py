"""What passes between the processes, encrypted: jobs, messages, tickets, staged commits."""
