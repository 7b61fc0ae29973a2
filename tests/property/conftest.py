"""Settings of hypothesis for all property tests."""

from hypothesis import settings

# A busy machine may miss any deadline; and a suite that passes once must pass everywhere.
settings.register_profile("everywhere", deadline=None, derandomize=True)
settings.load_profile("everywhere")
