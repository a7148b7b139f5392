"""Today's date as templates write it, to be looked for in a prompt."""

from __future__ import annotations

from datetime import date, timedelta

_FORMS = ("%Y-%m-%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y")


def spellings(today: date) -> tuple[str, ...]:
    """Also of the days before and after, since an engine may live in another time zone."""
    days = [today + timedelta(days=n) for n in (-1, 0, 1)]
    padded = [day.strftime(form) for day in days for form in _FORMS]
    bare = [
        day.strftime(form.replace("%d", str(day.day))) for day in days for form in _FORMS if "%b" in form.lower()
    ]  # fmt: skip
    return tuple(dict.fromkeys(padded + bare))
