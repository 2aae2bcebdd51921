"""The test kit for streams: real queries over your rows, in a scratch lake, and rows to compare.

```python
def test_clicks(scratch):
    scratch.run(clicks, [[{"click_id": "a"}], [{"click_id": "b"}]])  # one list per run
    assert scratch.rows(clicks, "click_id") == multiset([("a",), ("b",)])
```
"""

from tidemill.testing.scratch import Scratch, multiset

__all__ = ["Scratch", "multiset"]
