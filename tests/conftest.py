"""What holds for every test."""

from hypothesis import HealthCheck, settings

# Machines that run tests are busy: how long an example takes says nothing about the code.
settings.register_profile("sglr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sglr")
