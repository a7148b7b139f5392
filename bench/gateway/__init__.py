"""What a gateway costs: homing beside bare Envoy and two routers in Rust, in one run, every answer checked."""
