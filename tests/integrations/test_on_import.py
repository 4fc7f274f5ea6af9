"""when_imported: before, after, missing, failing, threads."""

import importlib
import sys
import textwrap
import threading

import pytest

from torch_mtl4.integrations._on_import import when_imported


@pytest.fixture
def module_file(tmp_path, monkeypatch):
    """Writes a module that can be imported and forgets it afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(name, source="value = 1\n"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        names.append(name)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_before_the_import(module_file):
    name, seen = module_file("mtl4_late"), []
    when_imported(name, lambda module: seen.append(module.value))
    assert seen == [] and name not in sys.modules
    importlib.import_module(name)
    assert seen == [1]


def test_after_the_import(module_file):
    name, seen = module_file("mtl4_early"), []
    importlib.import_module(name)
    when_imported(name, lambda module: seen.append(module.value))
    assert seen == [1]


def test_a_reload_calls_again(module_file):
    name, seen = module_file("mtl4_reloaded"), []
    when_imported(name, lambda module: seen.append(module.value))
    importlib.reload(importlib.import_module(name))
    assert seen == [1, 1]


def test_two_callbacks_for_one_module(module_file):
    name, seen = module_file("mtl4_two"), []
    when_imported(name, lambda module: seen.append("a"))
    when_imported(name, lambda module: seen.append("b"))
    importlib.import_module(name)
    assert seen == ["a", "b"]


def test_a_missing_module_stays_missing():
    when_imported("mtl4_no_such_module", lambda module: pytest.fail("called"))
    with pytest.raises(ModuleNotFoundError, match="mtl4_no_such_module"):
        importlib.import_module("mtl4_no_such_module")


def test_a_failing_callback_warns_and_the_import_succeeds(module_file):
    name = module_file("mtl4_failing")
    when_imported(name, lambda module: module.no_such_attribute)
    with pytest.warns(UserWarning, match=f"integration with {name} is off: AttributeError"):
        assert importlib.import_module(name).value == 1


def test_the_error_of_a_module_that_cannot_be_imported_is_its_own(module_file):
    name = module_file("mtl4_broken", "raise OSError('no disk')\n")
    when_imported(name, lambda module: pytest.fail("called"))
    with pytest.raises(OSError, match="no disk"):
        importlib.import_module(name)


def test_registration_waits_for_an_import_in_another_thread(module_file):
    source = """
        import mtl4_events
        mtl4_events.started.set()
        mtl4_events.go_on.wait(10)
        value = 1
    """
    events = importlib.import_module(
        module_file("mtl4_events", "import threading\nstarted, go_on = threading.Event(), threading.Event()\n")
    )
    name, seen = module_file("mtl4_slow", source), []
    importer = threading.Thread(target=importlib.import_module, args=(name,))
    importer.start()
    assert events.started.wait(10)
    registrar = threading.Thread(target=when_imported, args=(name, lambda module: seen.append(module.value)))
    registrar.start()
    events.go_on.set()
    importer.join(10)
    registrar.join(10)
    assert seen == [1]


def test_the_loader_keeps_its_type_and_source(module_file):
    name = module_file("mtl4_source")
    when_imported(name, lambda module: None)
    spec = importlib.import_module(name).__spec__
    assert type(spec.loader).__name__ == "SourceFileLoader"
    assert spec.loader.get_source(name) == "value = 1\n"
