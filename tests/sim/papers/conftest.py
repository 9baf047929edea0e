"""Every figure that these tests draw is looked at."""

from tests.looks import inspected as inspected
