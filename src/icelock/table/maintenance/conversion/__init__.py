"""A plain table becomes an encrypted one, and the way back: its files, its history, and what an interrupted call goes on from."""
