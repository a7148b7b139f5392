"""How what homing does grows: to 1,000 replicas, 100 gateways, 10 million sessions."""
