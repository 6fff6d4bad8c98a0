"""The page's scripts, which become one."""

from __future__ import annotations

import re
from collections import Counter

from orlomo.report.web.page import SCRIPTS, WEB

DECLARED = re.compile(r"^(?:async )?(?:function|const|let|class) +(\w+)", re.MULTILINE)


def test_no_name_is_declared_twice() -> None:
    names = Counter(name for script in SCRIPTS for name in DECLARED.findall((WEB / script).read_text("utf-8")))
    assert {name for name, count in names.items() if count > 1} == set()
    assert {path.name for path in WEB.glob("*.js")} == set(SCRIPTS)
