import pytest


@pytest.fixture
def csv(tmp_path):
    """A file with ids that look like numbers, two columns of numbers, and a column that no test reads."""
    path = tmp_path / "events.csv"
    path.write_text("id,x,y,secret\n007,1,2.5,a\n08,2,3.5,b\n,3,4.5,c\n")
    return path
