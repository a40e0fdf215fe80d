"""Reads what `go test -json` says and prints what a person wants to know of it.

Where tests failed: first their names, then for each the messages that it wrote itself,
without the lines of the servers' logs, of which the last warnings follow. A test that was
skipped counts as failed. Where all passed: the packages with their seconds, and how many
tests passed.
"""

import collections
import json
import re
import sys

LOG = re.compile(r'\blevel=(DEBUG|INFO|WARN|ERROR)\b|"level":"(DEBUG|INFO|WARN|ERROR)"')
NOISE = re.compile(r"^\s*(=== (RUN|PAUSE|CONT|NAME)\b|--- PASS|PASS$|ok\s|FAIL\b|exit status )")
VERDICT = re.compile(r"^\s*--- (FAIL|SKIP)")
LINES, WARNINGS = 60, 5  # of one test at most


def shorten(lines):
    """Splits the output of one test into its own messages and the last warnings of servers."""
    own, warnings = [], []
    for line in lines:
        if log := LOG.search(line):
            if "WARN" in log.groups() or "ERROR" in log.groups():
                warnings.append(line)
        elif not NOISE.match(line) and line.strip():
            own.append(line)
    if len(own) > LINES:
        own[LINES // 2 : -LINES // 2] = [f"    ... {len(own) - LINES} lines are left out ..."]
    return own, warnings[-WARNINGS:]


def main():
    output = collections.defaultdict(list)  # by package and test; of a package with None
    builds, verdicts, packages, junk, passed = [], {}, {}, [], 0
    for line in sys.stdin:
        try:
            event = json.loads(line)
            action = event["Action"]
        except (ValueError, KeyError, TypeError):
            junk.append(line.rstrip("\n"))  # Go itself, before it could run a test
            continue
        if action == "build-output":
            builds.append(event["Output"].rstrip("\n"))
            continue
        key = event.get("Package"), event.get("Test")
        if action == "output":
            output[key].extend(event["Output"].rstrip("\n").split("\n"))
        elif action in ("pass", "fail", "skip"):
            if key[1]:  # once in each dialect of DAP: one failure counts
                passed += action == "pass"
                if verdicts.get(key, "pass") == "pass":
                    verdicts[key] = action
            elif action != "skip":  # which says that it has no tests
                packages[key[0]] = action, event.get("Elapsed", 0)

    bad = [key for key, verdict in verdicts.items() if verdict != "pass"]
    told = {key: shorten(output[key]) for key in bad}
    # A test whose subtests failed says so too; it has a place of its own only if it says more.
    inner = {(package, test.rpartition("/")[0]) for package, test in bad}
    shown = [key for key in bad if key not in inner or any(not VERDICT.match(line) for line in told[key][0])]
    broken = [p for p, (verdict, _) in packages.items() if verdict == "fail" and not any(p == package for package, _ in bad)]

    if bad or broken or builds or not packages:
        print(f"{len(shown) + len(broken)} failed, {passed} passed:")
        for package, test in shown:
            print(f"  {verdicts[package, test]} {package} {test}")
        for package in broken:
            print(f"  fail {package}, in none of its tests")
        for line in (builds + junk)[:LINES]:
            print(line)
        # What a package says outside of its tests comes last: a race, in which dialect it was.
        packaged = [(package, None) for package, (verdict, _) in packages.items() if verdict == "fail"]
        for key in shown + packaged:
            own, warnings = told.get(key) or shorten(output[key])
            if not own and not warnings:
                continue
            print("\n" + " ".join(filter(None, key)))
            print("\n".join(own))
            if warnings:
                print("  the last warnings of its servers:")
                print("\n".join(warnings))
        return 1
    for package, (_, seconds) in sorted(packages.items(), key=lambda p: -p[1][1]):
        print(f"ok  {package}  {seconds:.1f}s")
    print(f"{passed} passed, 0 failed")
    # What the same stage runs beside the tests, and what that says when it fails.
    for line in junk[-LINES:]:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
