"""The upper of two levels: chooses the site of a request and hands it to the router of that site."""
