"""The viewer's model is what the header's classes give."""

from exhibit_a.report import typescript


def test_the_committed_model_is_what_the_classes_give():
    assert typescript.TARGET.read_text("utf-8") == typescript.model()
