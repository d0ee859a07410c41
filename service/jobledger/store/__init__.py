"""The only door to Postgres.

Functions take a connection and never commit: whoever opened the transaction knows what belongs in it.
Nothing else in the package imports SQLAlchemy or asyncpg.
"""
