"""One module per repair: what it needs of a template's record, and what it does to the turns.

Each is pure and gives the very same turns back where there is nothing to do. Each looks at the past, and at the user's
turn that follows at once, never further: what it makes of turn N stays when turn N+1 has come.
"""
