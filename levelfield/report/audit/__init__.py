"""Reports an audit: shares with intervals, a verdict in words, a page, a badge and a paragraph, all from rows."""
