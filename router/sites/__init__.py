"""Site choice on line (FleetMind): which site serves a request; that site's own engines are chosen afterwards."""
